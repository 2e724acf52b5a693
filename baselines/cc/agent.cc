// The controller of an agent: pacing_rate = pacing_gain x max_bandwidth, cwnd = cwnd_gain x BDP, with the estimates of
// BBR's model (bbr_model.h) and gains that come from outside once per decision interval.

#include "baselines/cc/agent.h"

#include <algorithm>
#include <cmath>

namespace bbrgym {

void AgentParameters::Describe(ParameterReader& reader) {
  reader.Field("preference", preference, 0.0, 1.0);
  reader.Field("cwnd_gain", cwnd_gain, kLeastGains.cwnd, kMostGains.cwnd);
  reader.Field("pacing_gain", pacing_gain, kLeastGains.pacing, kMostGains.pacing);
  reader.Field("is_always_steered", is_always_steered);
  BbrModelParameters::Describe(reader);
}

AgentController::AgentController(const Connection& connection, const AgentParameters& parameters)
    : BbrModelController(connection, parameters),
      agent_(parameters),
      steered_{.cwnd = parameters.cwnd_gain, .pacing = parameters.pacing_gain} {}

bool AgentController::Steer(double cwnd_gain, double pacing_gain) {
  // NaN would spread into every estimate: keep the last gain instead.
  if (!std::isnan(cwnd_gain)) steered_.cwnd = std::clamp(cwnd_gain, kLeastGains.cwnd, kMostGains.cwnd);
  if (!std::isnan(pacing_gain)) steered_.pacing = std::clamp(pacing_gain, kLeastGains.pacing, kMostGains.pacing);
  return true;
}

Gains AgentController::ChooseGains() const {
  return IsSteered() ? steered_ : BbrController::ChooseGains();
}

void AgentController::MoveCwnd(const AckEvent& ack, Bytes target) {
  // Without BBR's room for three bursts, which on a fast link is more than what an agent wants in the queue.
  const auto window = static_cast<Bytes>(BdpBytes(steered_.cwnd, max_bandwidth()));
  BbrController::MoveCwnd(ack, IsSteered() ? InWholeBursts(window) : target);
}

}  // namespace bbrgym
