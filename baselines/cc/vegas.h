#pragma once

#include <cstdint>

#include "baselines/cc/loss_based.h"
#include "baselines/cc/parameters.h"
#include "baselines/cc/round_counter.h"

namespace bbrgym {

struct VegasParameters {
  /// With fewer packets than this in the queue, the window grows by one packet per round trip (Linux: 2).
  double alpha_packets = 2.0;
  /// With more packets than this in the queue, the window shrinks by one (Linux: 4). At least alpha_packets.
  double beta_packets = 4.0;
  /// More packets than this in the queue end slow start (Linux: 1).
  double gamma_packets = 1.0;
  /// The window after a loss as a share of the one before (Linux: as in Reno).
  double loss_beta = 0.5;
  /// Pace at 1.2 windows per round trip (2 in early slow start), as Linux does under the fq queue discipline.
  bool is_paced = false;

  void Describe(ParameterReader& reader);
};

/// TCP Vegas (Brakmo, Peterson 1995): keeps a few packets in the queue, as the RTT shows them;
/// docs/algorithms/vegas.md.
class VegasController final : public LossBasedController {
 public:
  VegasController(const Connection& connection, const VegasParameters& parameters);

  void OnRestart(Nanoseconds now) override;
  Metrics metrics() const override;

 private:
  void Observe(const AckEvent& ack) override;
  /// The window moves once per round trip, in `Observe`.
  void GrowInAvoidance(const AckEvent& /*ack*/) override {}
  Bytes ReducedThreshold() override;

  void AdjustCwnd(bool is_cwnd_limited);
  void StartRound();

  VegasParameters parameters_;
  RoundCounter rounds_;
  // 0 before the first sample: since the flow began, and in this round.
  Nanoseconds base_rtt_ = 0;
  Nanoseconds round_rtt_ = 0;
  std::int64_t round_samples_ = 0;
};

}  // namespace bbrgym
