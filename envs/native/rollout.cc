#include "envs/native/rollout.h"

#include <algorithm>

#include "envs/native/agent_steps.h"

namespace bbrgym {

void Rollout::Decide(std::size_t step, std::size_t network, std::size_t networks, const FlowRow* rows,
                     PolicyNetwork::Scratch& scratch) const {
  const std::size_t count = networks * agents;
  for (std::size_t agent = network * agents; agent < (network + 1) * agents; ++agent) {
    const std::size_t place = step * count + agent;
    float* action = actions + 2 * place;
    std::copy_n(noise + 2 * place, 2, action);
    if (policy) {
      float* state = states + agent * policy->state_size();
      const Action mean = policy->Output(observations + place * observation_length, state, scratch);
      action[0] += static_cast<float>(mean.cwnd);
      action[1] += static_cast<float>(mean.pacing);
    }
    const Action chosen{action[0], action[1]};
    const double bdp_packets = rows[flows[agent]].metrics.Get(Metric::bdp_packets);
    const Gains found = gain_map.ToGains(policy ? policy->Bound(chosen) : chosen, bdp_packets);
    gains[agent] = found.cwnd;
    gains[count + agent] = found.pacing;
  }
}

void Rollout::Observe(std::size_t step, std::size_t network, std::size_t networks, const FlowRow* rows) const {
  const std::size_t count = networks * agents;
  for (std::size_t agent = network * agents; agent < (network + 1) * agents; ++agent) {
    const Steered steered{gains[agent], gains[count + agent], preferences[agent]};
    const float* before = observations + (step * count + agent) * observation_length;
    float* after = observations + ((step + 1) * count + agent) * observation_length;
    AddStep(features, rows[flows[agent]], steered, before, after, observation_length);
  }
}

}  // namespace bbrgym
