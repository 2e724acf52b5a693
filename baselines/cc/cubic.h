#pragma once

#include "baselines/cc/loss_based.h"
#include "baselines/cc/parameters.h"

namespace bbrgym {

struct CubicParameters {
  /// What a loss leaves of the window (RFC 9438, section 4.6).
  double beta = 0.7;
  /// Aggressiveness of the cubic function, in packets/s^3 (RFC 9438, section 5.1).
  double c = 0.4;
  /// Give up bandwidth faster when the windows at losses shrink (RFC 9438, section 4.7).
  bool has_fast_convergence = true;
  /// HyStart++ in the first slow start (RFC 9438, section 4.10 asks for it or the like).
  bool has_hystart = true;
  /// Pace at 1.2 (early slow start: 2) windows a round trip, as Linux does under the fq queue discipline.
  bool is_paced = false;

  void Describe(ParameterReader& reader);
};

/// CUBIC (RFC 9438).
class CubicController final : public LossBasedController {
 public:
  CubicController(const Connection& connection, const CubicParameters& parameters);

  Metrics metrics() const override;

 private:
  void GrowInAvoidance(const AckEvent& ack) override;
  Bytes ReducedThreshold() override;
  void OnTimeout() override;

  CubicParameters parameters_;
  // In packets, as the RFC's formulas are.
  double w_max_ = 0.0;
  double w_est_ = 0.0;
  double k_s_ = 0.0;
  double cwnd_prior_ = 0.0;
  double cwnd_fraction_ = 0.0;
  bool is_in_epoch_ = false;
  bool is_after_timeout_ = false;
  Nanoseconds epoch_start_ = 0;
};

}  // namespace bbrgym
