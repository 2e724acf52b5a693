#pragma once

#include <cstddef>
#include <cstdint>

#include "baselines/cc/policy/features.h"
#include "envs/model/reward.h"
#include "envs/model/rows.h"

namespace bbrgym {

/// What a flow observes of a step beside its row.
struct Steered {
  double cwnd_gain;  // chosen last
  double pacing_gain;
  double preference;
};

/// Adds a step to the observation `before`, of the last steps, and drops the oldest: `after` may be the same array. The
/// features are of a table with the columns of a row, those of `Steered`, and whether the flow took part in the step.
void AddStep(const PolicyTable& features, const FlowRow& row, const Steered& steered, const float* before, float* after,
             std::size_t length);

/// Number of columns of the table.
inline constexpr std::size_t kObservedColumns = kColumnCount<FlowRow> + 4;

/// The agents' side of the last step of N links, of any engine: K flows of each, M = N x K; those of a link are
/// adjacent. The arrays are the caller's.
struct AgentSteps {
  std::size_t links;      // N
  std::size_t max_flows;  // of a link
  std::size_t agents;     // K
  const PolicyTable& features;
  const Reward& reward;
  std::size_t observation_length;

  const FlowRow* flow_rows;      // (N, max_flows)
  const LinkRow* link_rows;      // (N)
  const std::int64_t* flows;     // (M): indices of the agents' flows
  const double* gains;           // (2, M): cwnd_gains and pacing_gains chosen last
  const double* preferences;     // (M)
  const Conditions* conditions;  // (M)
  FlowRow* rows;                 // (M): written
  float* observations;           // (M, observation_length): a step is added
  double* rewards;               // (M): written

  /// Reads the step of a link. Throws std::out_of_range for a flow that it does not have.
  void Read(std::size_t link) const;
};

}  // namespace bbrgym
