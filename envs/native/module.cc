// bbrgym._native: the built-in engine, the columns of every engine's rows, and what agents see of them.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "envs/model/reward.h"
#include "envs/model/rows.h"
#include "envs/model/scenario_binding.h"
#include "envs/native/agent_steps.h"
#include "envs/native/batch.h"
#include "envs/native/rollout.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace bbrgym {
namespace {

template <typename Value, std::size_t kDimensions>
using Array = nb::ndarray<Value, nb::ndim<kDimensions>, nb::c_contig, nb::device::cpu>;
using Durations = Array<const std::int64_t, 1>;
using FormulaEntry = std::tuple<double, double, std::string>;

/// Throws std::invalid_argument unless an array has this shape.
template <typename Array>
void CheckShape(const char* name, const Array& array, std::initializer_list<std::size_t> shape) {
  std::string wanted;
  bool is_good = array.ndim() == shape.size();
  for (std::size_t i = 0; i < shape.size(); ++i) {
    wanted += (i > 0 ? ", " : "") + std::to_string(shape.begin()[i]);
    is_good = is_good && array.shape(i) == shape.begin()[i];
  }
  if (!is_good) throw std::invalid_argument(std::string(name) + " must have the shape (" + wanted + ")");
}

void CheckFeatures(const PolicyTable& features, std::size_t observation_length) {
  if (features.columns() != kObservedColumns || observation_length < features.size()) {
    throw std::invalid_argument("the features must be of the columns of rows, two gains, preference and took_part");
  }
}

void SetAllGains(Batch& batch, const Array<const std::int64_t, 1>& indices, const Array<const std::int64_t, 1>& flows,
                 const Array<const double, 2>& gains) {
  const std::size_t count = indices.shape(0);
  CheckShape("flows", flows, {count});
  CheckShape("gains", gains, {2, count});
  for (std::size_t i = 0; i < count; ++i) {
    batch.SetGains(static_cast<std::size_t>(indices(i)), flows(i), gains(0, i), gains(1, i));
  }
}

void Run(Batch& batch, const PolicyTable& features, const GainMap& gain_map, const PolicyNetwork* policy,
         const Durations& durations_ns, const Durations& flows, const Array<std::int64_t, 1>& next_steps,
         const Array<const double, 1>& preferences, const Array<double, 2>& gains, const Array<float, 2>& states,
         const Array<float, 3>& observations, const Array<const float, 3>& noise, const Array<float, 3>& actions,
         const Array<double, 4>& flow_rows, const Array<double, 3>& link_rows, const Array<double, 2>& times_s,
         const Array<std::uint8_t, 2>& is_over, const Array<std::uint8_t, 2>& is_complete) {
  const std::size_t networks = batch.size();
  const std::size_t steps = actions.shape(0);
  const std::size_t count = actions.shape(1);
  const std::size_t length = observations.shape(2);
  CheckShape("durations_ns", durations_ns, {networks});
  CheckShape("flows", flows, {count});
  CheckShape("next_steps", next_steps, {networks});
  CheckShape("preferences", preferences, {count});
  CheckShape("gains", gains, {2, count});
  CheckShape("states", states, {count, policy ? policy->state_size() : 0});
  CheckShape("observations", observations, {steps + 1, count, length});
  CheckShape("actions", actions, {steps, networks * (count / networks), 2});
  CheckShape("noise", noise, {steps, count, 2});
  CheckShape("flow_rows", flow_rows, {steps, networks, batch.max_flows(), kColumnCount<FlowRow>});
  CheckShape("link_rows", link_rows, {steps, networks, kColumnCount<LinkRow>});
  CheckShape("times_s", times_s, {steps, networks});
  CheckShape("is_over", is_over, {steps, networks});
  CheckShape("is_complete", is_complete, {steps, networks});
  CheckFeatures(features, length);
  if (policy && policy->inputs() != length) {
    throw std::invalid_argument("the policy must take " + std::to_string(length) + " values, and takes " +
                                std::to_string(policy->inputs()));
  }
  for (std::size_t i = 0; i < networks; ++i) {
    if (next_steps(i) < 0) throw std::invalid_argument("next_steps must be >= 0");
  }
  const Rollout rollout{.steps = steps,
                        .agents = count / networks,
                        .features = features,
                        .gain_map = gain_map,
                        .policy = policy,
                        .observation_length = length,
                        .durations_ns = durations_ns.data(),
                        .flows = flows.data(),
                        .preferences = preferences.data(),
                        .next_steps = next_steps.data(),
                        .gains = gains.data(),
                        .states = states.data(),
                        .observations = observations.data(),
                        .noise = noise.data(),
                        .actions = actions.data(),
                        .flow_rows = reinterpret_cast<FlowRow*>(flow_rows.data()),
                        .link_rows = reinterpret_cast<LinkRow*>(link_rows.data()),
                        .times_s = times_s.data(),
                        .is_over = is_over.data(),
                        .is_complete = is_complete.data()};
  const nb::gil_scoped_release release;
  batch.Run(rollout);
}

void CheckFlows(const Array<const std::int64_t, 1>& flows, std::size_t max_flows) {
  for (std::size_t i = 0; i < flows.shape(0); ++i) {
    if (flows(i) < 0 || flows(i) >= static_cast<std::int64_t>(max_flows)) {
      throw std::out_of_range("a link has no flow " + std::to_string(flows(i)));
    }
  }
}

void MakeAgentSteps(AgentSteps* self, const PolicyTable& features, const Reward& reward,
                    const Array<const double, 3>& flow_rows, const Array<const double, 2>& link_rows,
                    const Array<const std::int64_t, 1>& flows, const Array<const double, 2>& gains,
                    const Array<const double, 1>& preferences, const Array<const double, 2>& conditions,
                    const Array<double, 2>& rows, const Array<float, 2>& observations,
                    const Array<double, 1>& rewards) {
  const std::size_t links = flow_rows.shape(0);
  const std::size_t agents = flows.shape(0) / std::max<std::size_t>(links, 1);
  const std::size_t count = links * agents;
  const std::size_t length = observations.shape(1);
  CheckShape("flow_rows", flow_rows, {links, flow_rows.shape(1), kColumnCount<FlowRow>});
  CheckShape("link_rows", link_rows, {links, kColumnCount<LinkRow>});
  CheckShape("flows", flows, {count});
  CheckShape("gains", gains, {2, count});
  CheckShape("preferences", preferences, {count});
  CheckShape("conditions", conditions, {count, kConditions});
  CheckShape("rows", rows, {count, kColumnCount<FlowRow>});
  CheckShape("observations", observations, {count, length});
  CheckShape("rewards", rewards, {count});
  CheckFeatures(features, length);
  new (self) AgentSteps{.links = links,
                        .max_flows = flow_rows.shape(1),
                        .agents = agents,
                        .features = features,
                        .reward = reward,
                        .observation_length = length,
                        .flow_rows = reinterpret_cast<const FlowRow*>(flow_rows.data()),
                        .link_rows = reinterpret_cast<const LinkRow*>(link_rows.data()),
                        .flows = flows.data(),
                        .gains = gains.data(),
                        .preferences = preferences.data(),
                        .conditions = reinterpret_cast<const Conditions*>(conditions.data()),
                        .rows = reinterpret_cast<FlowRow*>(rows.data()),
                        .observations = observations.data(),
                        .rewards = rewards.data()};
}

void ReadSteps(const AgentSteps& steps, const std::optional<Array<const std::int64_t, 1>>& links) {
  const std::size_t count = links ? links->shape(0) : steps.links;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t link = links ? static_cast<std::size_t>((*links)(i)) : i;
    if (link >= steps.links) throw std::out_of_range("there is no link " + std::to_string((*links)(i)));
    steps.Read(link);
  }
}

/// Evaluates the rewards of some flows of L links, M / L of each.
void EvaluateRewards(const Reward& reward, const Array<const double, 3>& flow_rows,
                     const Array<const double, 2>& link_rows, const Array<const std::int64_t, 1>& flows,
                     const Array<const double, 2>& conditions, const Array<double, 1>& rewards) {
  CheckShape("rewards", rewards, {flows.shape(0)});
  const std::size_t links = flow_rows.shape(0);
  const std::size_t max_flows = flow_rows.shape(1);
  const std::size_t agents = flows.shape(0) / std::max<std::size_t>(links, 1);
  CheckShape("flow_rows", flow_rows, {links, max_flows, kColumnCount<FlowRow>});
  CheckShape("link_rows", link_rows, {links, kColumnCount<LinkRow>});
  CheckShape("flows", flows, {links * agents});
  CheckShape("conditions", conditions, {links * agents, kConditions});
  CheckFlows(flows, max_flows);
  const auto* rows = reinterpret_cast<const FlowRow*>(flow_rows.data());
  const auto* of = reinterpret_cast<const Conditions*>(conditions.data());
  for (std::size_t link = 0; link < links; ++link) {
    const std::size_t first = link * agents;
    reward.Evaluate({.rows = {rows + link * max_flows, max_flows},
                     .link = reinterpret_cast<const LinkRow*>(link_rows.data())[link],
                     .chosen = {flows.data() + first, agents},
                     .conditions = of + first},
                    rewards.data() + first);
  }
}

nb::typed<nb::dict, std::string, FormulaEntry> EntryByName(const std::vector<StepFormula>& formulas) {
  nb::typed<nb::dict, std::string, FormulaEntry> entries;
  for (const StepFormula& it : formulas) entries[it.name] = FormulaEntry(it.low, it.high, it.meaning);
  return entries;
}

/// The getter of a read-only NumPy view of values that the batch owns. The last dimension of rows has their columns.
template <typename Value>
auto ViewOf(std::vector<Value>& (Batch::*values)()) {
  return [values](nb::handle_t<Batch> self) {
    using Number = std::conditional_t<std::is_class_v<Value>, double, Value>;
    auto& batch = nb::cast<Batch&>(self);
    std::vector<std::size_t> shape{batch.size()};
    if constexpr (std::is_same_v<Value, FlowRow>) shape.push_back(batch.max_flows());
    if constexpr (std::is_class_v<Value>) shape.push_back(kColumnCount<Value>);
    const auto* numbers = reinterpret_cast<const Number*>((batch.*values)().data());
    return nb::ndarray<nb::numpy, const Number>(numbers, shape.size(), shape.data(), self);
  };
}

nb::ndarray<nb::numpy, bool> WhoTookPart(const nb::ndarray<const double, nb::c_contig, nb::device::cpu>& rows) {
  const std::size_t dimensions = rows.ndim();
  if (dimensions == 0 || rows.shape(dimensions - 1) != kColumnCount<FlowRow>) {
    throw std::invalid_argument("rows must have the shape (…, " + std::to_string(kColumnCount<FlowRow>) + ")");
  }
  const std::vector<std::size_t> shape(rows.shape_ptr(), rows.shape_ptr() + dimensions - 1);
  const std::span flows(reinterpret_cast<const FlowRow*>(rows.data()), rows.size() / kColumnCount<FlowRow>);
  auto values = std::make_unique<bool[]>(flows.size());
  std::ranges::transform(flows, values.get(), TookPart);
  bool* const data = values.get();
  const nb::capsule owner(values.release(), [](void* it) noexcept { delete[] static_cast<bool*>(it); });
  return {data, shape.size(), shape.data(), owner};
}

nb::typed<nb::dict, std::string, std::string> MeaningByName(std::span<const Column> columns) {
  nb::typed<nb::dict, std::string, std::string> meanings;
  for (const Column& column : columns) meanings[column.name] = column.meaning;
  return meanings;
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "The native engine, many bottlenecks in this process, and what agents see of the rows of any engine (C++).";

  nb::class_<Scenario>(m, "Scenario", "A scenario as engines read it. Episodes can share it.")
      .def(
          "__init__",
          [](Scenario* self, const PlainScenario& plain) { new (self) Scenario(RecordFromDict<Scenario>(plain)); },
          "plain"_a, "Convert `Scenario.to_dict()`. Raises ValueError for a field that no engine knows.");

  nb::class_<Batch>(m, "Batch", "Scenarios that are stepped together; none affects another.")
      .def(nb::init<std::size_t, std::size_t, std::size_t, double>(), "size"_a, "max_flows"_a, "threads"_a = 1,
           "packets_worth_threads"_a = Batch::kPacketsWorthThreads,
           "A step of fewer packets than `packets_worth_threads` is the work of one thread.")
      .def("reset", &Batch::Reset, "index"_a, "scenario"_a, "seed"_a,
           "Start a scenario at time 0. Raises ValueError for what cannot be simulated.")
      .def("set_gains", &Batch::SetGains, "index"_a, "flow"_a, "cwnd_gain"_a, "pacing_gain"_a,
           "Set the gains of an agent's flow. Raises IndexError or ValueError.")
      .def("set_all_gains", &SetAllGains, "indices"_a, "flows"_a, "gains"_a,
           "Call `set_gains` for each of M flows; `gains` has the shape (2, M). Raises IndexError or ValueError.")
      .def(
          "step",
          [](Batch& batch, const Durations& durations_ns) {
            if (durations_ns.shape(0) != batch.size()) {
              throw std::invalid_argument("durations_ns has " + std::to_string(durations_ns.shape(0)) +
                                          " entries, must have one per scenario: " + std::to_string(batch.size()));
            }
            const std::int64_t* durations = durations_ns.data();
            const nb::gil_scoped_release release;
            batch.Step(durations);
          },
          "durations_ns"_a,
          "Simulate each scenario for its duration, or to its end; 0 leaves a scenario as it is. Releases the GIL.")
      .def("run", &Run, "features"_a, "gain_map"_a, "policy"_a.none(), "durations_ns"_a, "flows"_a, "next_steps"_a,
           "preferences"_a, "gains"_a, "states"_a, "observations"_a, "noise"_a, "actions"_a, "flow_rows"_a,
           "link_rows"_a, "times_s"_a, "is_over"_a, "is_complete"_a,
           "Make the steps of a rollout, from `next_steps` on, to the last one or to the end of each episode; see "
           "envs/native/rollout.h for the arrays. Raises ValueError. Releases the GIL.")
      .def("faults", &Batch::Faults, "Which scenarios have a flow whose decisions are void, by their index, and why.")
      .def_prop_ro("flow_rows", ViewOf(&Batch::flow_rows),
                   "Rows of the last step, shape (size, max_flows, FLOW_COLUMNS); a view that later steps change.")
      .def_prop_ro("link_rows", ViewOf(&Batch::link_rows),
                   "Rows of the links, shape (size, LINK_COLUMNS); a view as well.")
      .def_prop_ro("times_s", ViewOf(&Batch::times_s), "Simulated times in s, shape (size,); a view as well.")
      .def_prop_ro("is_over", ViewOf(&Batch::is_over),
                   "Whether the duration has passed or all data is delivered: uint8, shape (size,); a view as well.")
      .def_prop_ro(
          "is_complete", ViewOf(&Batch::is_complete),
          "Whether every flow is finite and has delivered all its bytes: uint8, shape (size,); a view as well.");

  nb::class_<Reward>(m, "Reward", "A weighted sum of terms; see `bbrgym.envs.reward.Reward`.")
      .def(nb::init<const std::vector<std::pair<std::string, double>>&>(), "weights"_a,
           "The names of the terms, with their weights. Raises ValueError for an unknown one.")
      .def("evaluate", &EvaluateRewards, "flow_rows"_a, "link_rows"_a, "flows"_a, "conditions"_a,
           "rewards"_a.noconvert(),
           "Write the rewards of M flows on L links; see `bbrgym.envs.reward.RewardContext`. Raises ValueError or "
           "IndexError.");
  nb::class_<AgentSteps>(m, "AgentSteps", "The agents' side of the last step of N links, K flows of each.")
      .def("__init__", &MakeAgentSteps, "features"_a, "reward"_a, "flow_rows"_a.noconvert(), "link_rows"_a.noconvert(),
           "flows"_a.noconvert(), "gains"_a.noconvert(), "preferences"_a.noconvert(), "conditions"_a.noconvert(),
           "rows"_a.noconvert(), "observations"_a.noconvert(), "rewards"_a.noconvert(), nb::keep_alive<1, 2>(),
           nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>(), nb::keep_alive<1, 5>(), nb::keep_alive<1, 6>(),
           nb::keep_alive<1, 7>(), nb::keep_alive<1, 8>(), nb::keep_alive<1, 9>(), nb::keep_alive<1, 10>(),
           nb::keep_alive<1, 11>(), nb::keep_alive<1, 12>(),
           "Remember the arrays; see envs/native/agent_steps.h. Raises ValueError.")
      .def("read", &ReadSteps, "links"_a = nb::none(),
           "Write the rows, observations and rewards of the agent flows of all links, or of some. Raises IndexError.");
  m.def(
      "reward_terms", [] { return EntryByName(RewardTerms()); },
      "The terms of rewards: lowest and highest value, and meaning.");

  m.def(
      "took_part", &WhoTookPart, "rows"_a,
      "Whether flows took part in a step: from rows, shape (…, FLOW_COLUMNS), to bool, shape (…). Raises ValueError.");
  m.def(
      "scenario_fields", [] { return FieldEntries<Scenario>(kScenarioFields); },
      "The fields of a scenario in order: default, kind of values, whether None is one, bounds, names, meaning.");
  m.def("flow_fields", [] { return FieldEntries<Flow>(kFlowFields); }, "The fields of a flow, as `scenario_fields`.");
  m.def("flow_columns", [] { return MeaningByName(kFlowColumns); }, "The columns of a flow's row, with their meaning.");
  m.def(
      "link_columns", [] { return MeaningByName(kLinkColumns); }, "The columns of the link's row, with their meaning.");
}

}  // namespace bbrgym
