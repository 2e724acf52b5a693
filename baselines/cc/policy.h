#pragma once

#include <cstdint>

#include "baselines/cc/agent.h"
#include "baselines/cc/policy/network.h"
#include "baselines/cc/rtt_sample.h"

namespace bbrgym {

/// The controller of an agent that runs the agent itself: once per interval it computes the features of its own flow,
/// as an environment does, and steers itself by `Connection::policy`. It cannot be steered from outside.
///
/// Without a policy it keeps the gains of its parameters.
class PolicyController final : public AgentController {
 public:
  PolicyController(const Connection& connection, const AgentParameters& parameters);

  void OnAck(const AckEvent& ack) override;
  bool Steer(double /*cwnd_gain*/, double /*pacing_gain*/) override { return false; }

  /// The observation of the last decision; empty without a policy.
  const std::vector<float>& observation() const { return memory_.observation; }

 private:
  /// Measurements since the last decision.
  struct Step {
    Nanoseconds begin = 0;
    Bytes sent_before = 0;
    Bytes delivered_before = 0;
    Bytes lost = 0;
    RttSample rtts = {};
  };

  Nanoseconds Interval() const;
  PolicyColumns Columns(const AckEvent& ack) const;
  void Decide(PolicyColumns columns);

  PolicyNetwork::Memory memory_;
  Gains chosen_;
  Step step_;
  Nanoseconds last_rtt_ = 0;
  Nanoseconds next_decision_ = 0;
  bool has_begun_ = false;
};

}  // namespace bbrgym
