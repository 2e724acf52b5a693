#pragma once

#include "baselines/cc/bbr.h"

namespace bbrgym {

struct BbrAcdParameters : PapersBbrParameters {
  /// RTTs of successive ACKs that differ by no more than this count as equal.
  double rtt_tolerance_ms = 1.0;
  /// So many equal pairs in a row mean a queue that stands: three ACKs.
  std::int64_t equal_rtts = 2;
  /// So many RTprops mean congestion whatever the RTTs before.
  double rtt_ratio = 2.0;
  /// Halve once in a recovery, as the article's text says, instead of on every ACK of its first round, as the code
  /// does.
  bool is_halved_once = false;

  void Describe(ParameterReader& reader);
};

/// BBR-ACD (Mahmud et al., Electronics 2020): answers a loss only if the RTTs say that it was congestion, and then
/// drastically; docs/algorithms/bbr-acd.md.
class BbrAcdController final : public BbrController {
 public:
  BbrAcdController(const Connection& connection, const BbrAcdParameters& parameters);

 private:
  void Observe(const AckEvent& ack) override;
  bool RecoverOrRestoreCwnd(const AckEvent& ack) override;
  void RestoreCwndAfterProbeRtt() override {}  // the window grows back by itself

  bool IsCongested() const;

  BbrAcdParameters detection_;
  Nanoseconds rtt_ = 0;
  std::int64_t equal_in_a_row_ = 0;
  bool is_halved_ = false;
};

}  // namespace bbrgym
