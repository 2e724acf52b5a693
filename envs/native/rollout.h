#pragma once

#include <cstddef>
#include <cstdint>

#include "baselines/cc/policy/features.h"
#include "baselines/cc/policy/gains.h"
#include "baselines/cc/policy/network.h"
#include "envs/model/rows.h"

namespace bbrgym {

/// T steps of the N networks of a batch in which agents steer K flows of each network, and where they are written. The
/// arrays are the caller's. M = N x K; the agents' flows of a network are adjacent.
struct Rollout {
  std::size_t steps;            // T
  std::size_t agents;           // K
  const PolicyTable& features;  // as of `AddStep`
  const GainMap& gain_map;
  /// A network, or null: `noise` then has the actions.
  const PolicyNetwork* policy;
  std::size_t observation_length;

  const std::int64_t* durations_ns;  // (N): of a step
  const std::int64_t* flows;         // (M): indices of the agents' flows
  const double* preferences;         // (M)
  std::int64_t* next_steps;          // (N): the first step to make; afterwards the one after the last that was made
  double* gains;                     // (2, M): cwnd_gains and pacing_gains chosen last
  float* states;                     // (M, state_size of the policy): what its LSTM remembers of each flow
  float* observations;               // (T + 1, M, observation_length): the first of each network is given
  const float* noise;                // (T, M, 2): added to the policy's actions; the actions themselves without one
  float* actions;                    // (T, M, 2): the chosen ones, before they are bounded
  FlowRow* flow_rows;                // (T, N, max_flows)
  LinkRow* link_rows;                // (T, N)
  double* times_s;                   // (T, N)
  std::uint8_t* is_over;             // (T, N)
  std::uint8_t* is_complete;         // (T, N)

  /// Chooses the gains of a network's agents in one of the steps; `rows` are the network's last rows.
  void Decide(std::size_t step, std::size_t network, std::size_t networks, const FlowRow* rows,
              PolicyNetwork::Scratch& scratch) const;

  /// Adds the rows of a step to the observations of the agents of a network.
  void Observe(std::size_t step, std::size_t network, std::size_t networks, const FlowRow* rows) const;
};

}  // namespace bbrgym
