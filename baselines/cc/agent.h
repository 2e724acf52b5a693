#pragma once

#include "baselines/cc/bbr_model.h"

namespace bbrgym {

struct AgentParameters : BbrModelParameters {
  /// The gains until the first ones come from outside: those of BBR while it cruises.
  double cwnd_gain = 2.0;
  double pacing_gain = 1.0;
  /// Whether the gains apply in every mode, not only in ProbeBW.
  bool is_always_steered = false;
  /// What the flow prefers, for an agent that observes it: from 0, the least delay, to 1, its share beside rivals that
  /// fill the buffer. The controller does not use it.
  double preference = 0.25;

  void Describe(ParameterReader& reader);
};

/// Bounds of gains from outside. A window of a small part of a BDP starves the flow, one of many BDPs only fills
/// buffers, and a pacing gain far from 1 empties or floods the queue within one decision interval.
inline constexpr Gains kLeastGains = {.cwnd = 0.25, .pacing = 0.25};
inline constexpr Gains kMostGains = {.cwnd = 64.0, .pacing = 4.0};

/// BBR's model of the path, and in ProbeBW the two gains that come from outside:
/// cwnd = cwnd_gain x BDP and pacing_rate = pacing_gain x max_bandwidth.
class AgentController : public BbrModelController {
 public:
  AgentController(const Connection& connection, const AgentParameters& parameters);

  bool Steer(double cwnd_gain, double pacing_gain) override;
  double preference() const { return agent_.preference; }

 protected:
  Gains ChooseGains() const final;
  void MoveCwnd(const AckEvent& ack, Bytes target) final;

 private:
  bool IsSteered() const { return mode() == Mode::kProbeBw || agent_.is_always_steered; }

  AgentParameters agent_;
  Gains steered_;
};

}  // namespace bbrgym
