#pragma once

#include "baselines/cc/bbr.h"

namespace bbrgym {

struct BbrAcdParameters : PapersBbrParameters {
  /// RTTs of successive ACKs that differ by no more than this count as equal.
  double rtt_tolerance_ms = 1.0;
  /// This many equal pairs in a row, that is three ACKs, mean a standing queue.
  std::int64_t equal_rtts = 2;
  /// An RTT above this multiple of min_rtt means congestion, whatever the RTTs before.
  double rtt_ratio = 2.0;
  /// Whether to halve once per recovery, as in the text of the article, instead of on every ACK of its first round, as
  /// in the code.
  bool is_halved_once = false;

  void Describe(ParameterReader& reader);
};

/// BBR-ACD (Mahmud et al., Electronics 2020): reacts to a loss only if the RTTs indicate congestion, and then
/// drastically; docs/algorithms/bbr-acd.md.
class BbrAcdController final : public BbrController {
 public:
  BbrAcdController(const Connection& connection, const BbrAcdParameters& parameters);

 private:
  void Observe(const AckEvent& ack) override;
  bool RecoverOrRestoreCwnd(const AckEvent& ack) override;
  void RestoreCwndAfterProbeRtt() override {}  // the window grows again by itself

  bool IsCongested() const;

  BbrAcdParameters detection_;
  Nanoseconds rtt_ = 0;
  std::int64_t equal_in_a_row_ = 0;
  bool is_halved_ = false;
};

}  // namespace bbrgym
