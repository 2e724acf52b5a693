#pragma once

#include <cstdint>

#include "baselines/cc/bbr.h"

namespace bbrgym {

struct EbccParameters : PapersBbrParameters {
  /// gamma: with fewer packets than this in the queue, by the estimate, the path is underused.
  std::int64_t queue_threshold_packets = 30;
  /// The window after a loss with a long queue as a share of the one before, as in NewReno.
  double beta = 0.5;
  /// Whether equation (7) averages the current window, not its target, with the last one of a short queue.
  bool is_eq7_operand_cwnd = false;

  void Describe(ParameterReader& reader);
};

/// eBCC (Han et al., Wireless Communications and Mobile Computing 2022): in ProbeBW the window follows an estimate of
/// the queue, and a loss while it is long leads to ProbeRTT; docs/algorithms/ebcc.md.
class EbccController final : public BbrController {
 public:
  EbccController(const Connection& connection, const EbccParameters& parameters);

 private:
  void Observe(const AckEvent& ack) override;
  void MoveCwnd(const AckEvent& ack, Bytes target) override;

  void AnswerLoss(const AckEvent& ack);
  Bytes ChooseCwnd(Bytes target);
  /// diff >= gamma: equations (3) to (5).
  bool IsQueueLong() const;
  /// Equation (8).
  Bytes ReducedCwnd() const;

  EbccParameters queue_aware_;
  Nanoseconds rtt_ = 0;
  /// Rounds of ProbeBW without loss; a loss restarts the round.
  RoundCounter calm_rounds_;
  bool is_calm_round_over_ = false;
  /// BIC's W_max, the window at the last loss; 0 if there is none to stay below.
  Bytes loss_cwnd_ = 0;
  /// lastCwnd: the window of the last round with a short queue; 0 before the first.
  Bytes short_queue_cwnd_ = 0;
  Bytes delivered_at_reduction_ = 0;
};

}  // namespace bbrgym
