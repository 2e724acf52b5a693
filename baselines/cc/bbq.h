#pragma once

#include "baselines/cc/bbr.h"

namespace bbrgym {

struct BbqParameters : PapersBbrParameters {
  /// Longest probe, in ms, while a queue persists: flows with longer RTTs then all probe equally long.
  double probe_ms = 3.0;
  /// An RTT this much above min_rtt means that a queue persists: the upper end of the reported 0.5 % to 1 %.
  double queue_threshold = 0.01;

  void Describe(ParameterReader& reader);
};

/// BBQ (Ma, Jiang, Wang, Li 2017): while a queue persists, long-RTT flows probe for bandwidth no longer than short
/// ones; docs/algorithms/bbq.md.
class BbqController final : public BbrController {
 public:
  BbqController(const Connection& connection, const BbqParameters& parameters);

 private:
  void Observe(const AckEvent& ack) override;
  bool IsPhaseOver(const AckEvent& ack) const override;

  BbqParameters short_probe_;
  Nanoseconds rtt_ = 0;
};

}  // namespace bbrgym
