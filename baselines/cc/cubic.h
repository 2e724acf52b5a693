#pragma once

#include "baselines/cc/loss_based.h"
#include "baselines/cc/parameters.h"

namespace bbrgym {

struct CubicParameters {
  /// The window after a loss as a share of the one before (RFC 9438, section 4.6).
  double beta = 0.7;
  /// The same after a CE mark (RFC 8511, section 3.1).
  double beta_ecn = 0.85;
  /// Aggressiveness of the cubic function, in packets/s^3 (RFC 9438, section 5.1).
  double c = 0.4;
  /// Whether to release bandwidth faster when the window at losses shrinks (RFC 9438, section 4.7).
  bool has_fast_convergence = true;
  /// HyStart++ in the first slow start (RFC 9438, section 4.10 asks for it or something similar).
  bool has_hystart = true;
  /// Pace at 1.2 windows per round trip (2 in early slow start), as Linux does under the fq queue discipline.
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
  Bytes ReducedThreshold() override { return Reduce(parameters_.beta); }
  Bytes MarkedThreshold() override { return Reduce(parameters_.beta_ecn); }
  Bytes Reduce(double beta);
  void OnTimeout() override;
  void UndoReduction() override { curve_ = curve_before_reduction_; }

  /// The curve of the window, in packets, as in the formulas of the RFC.
  struct Curve {
    double w_max = 0.0;
    double w_est = 0.0;
    double k_s = 0.0;
    double cwnd_prior = 0.0;
    double cwnd_fraction = 0.0;
    bool is_in_epoch = false;
    bool is_after_timeout = false;
    Nanoseconds epoch_start = 0;  // in limited_time()
  };

  CubicParameters parameters_;
  Curve curve_;
  Curve curve_before_reduction_;
};

}  // namespace bbrgym
