#include "envs/native/agent_steps.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

namespace bbrgym {

void AddStep(const PolicyTable& features, const FlowRow& row, const Steered& steered, const float* before, float* after,
             std::size_t length) {
  std::array<double, kObservedColumns> table;
  double* column = std::ranges::copy(ValuesOf(row), table.begin()).out;
  *column++ = steered.cwnd_gain;
  *column++ = steered.pacing_gain;
  *column++ = steered.preference;
  *column = TookPart(row) ? 1.0 : 0.0;
  features.Evaluate(table.data(), 1, std::copy(before + features.size(), before + length, after));
}

void AgentSteps::Read(std::size_t link) const {
  const std::span all(flow_rows + link * max_flows, max_flows);
  const std::size_t first = link * agents;
  const std::size_t count = links * agents;
  for (std::size_t agent = first; agent < first + agents; ++agent) {
    if (flows[agent] < 0 || flows[agent] >= static_cast<std::int64_t>(max_flows)) {
      throw std::out_of_range("a link has no flow " + std::to_string(flows[agent]));
    }
    rows[agent] = all[static_cast<std::size_t>(flows[agent])];
    const Steered steered{gains[agent], gains[count + agent], preferences[agent]};
    float* observation = observations + agent * observation_length;
    AddStep(features, rows[agent], steered, observation, observation, observation_length);
  }
  reward.Evaluate({all, link_rows[link], {flows + first, agents}, conditions + first}, rewards + first);
}

}  // namespace bbrgym
