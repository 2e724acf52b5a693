#pragma once

#include "baselines/cc/loss_based.h"
#include "baselines/cc/parameters.h"

namespace bbrgym {

struct NewRenoParameters {
  /// The window after a loss as a share of the one before (RFC 5681, equation (4)).
  double beta = 0.5;
  /// The same after a CE mark (RFC 8511, section 3.1).
  double beta_ecn = 0.8;
  /// HyStart++ in the first slow start; RFC 5681 has none.
  bool has_hystart = false;
  /// Pace at 1.2 windows per round trip (2 in early slow start), as Linux does under the fq queue discipline.
  bool is_paced = false;

  void Describe(ParameterReader& reader);
};

/// NewReno: additive increase by one packet per round trip, halving on loss (RFC 5681; RFC 6582 over SACK and PRR).
class NewRenoController final : public LossBasedController {
 public:
  NewRenoController(const Connection& connection, const NewRenoParameters& parameters);

 private:
  void GrowInAvoidance(const AckEvent& ack) override;
  Bytes ReducedThreshold() override { return Reduce(parameters_.beta); }
  Bytes MarkedThreshold() override { return Reduce(parameters_.beta_ecn); }
  Bytes Reduce(double beta);

  NewRenoParameters parameters_;
  Bytes acked_towards_growth_ = 0;
};

}  // namespace bbrgym
