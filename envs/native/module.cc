// bbrgym._native: the built-in engine, and the columns of every engine's rows.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "envs/model/rows.h"
#include "envs/model/scenario_binding.h"
#include "envs/native/batch.h"
#include "envs/native/rollout.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace bbrgym {
namespace {

template <typename Value, std::size_t kDimensions>
using Array = nb::ndarray<Value, nb::ndim<kDimensions>, nb::c_contig, nb::device::cpu>;
using Durations = Array<const std::int64_t, 1>;

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

void SteerAll(Batch& batch, const Array<const std::int64_t, 1>& indices, const Array<const std::int64_t, 1>& flows,
              const Array<const double, 2>& gains) {
  const std::size_t count = indices.shape(0);
  CheckShape("flows", flows, {count});
  CheckShape("gains", gains, {2, count});
  for (std::size_t i = 0; i < count; ++i) {
    batch.Steer(static_cast<std::size_t>(indices(i)), flows(i), gains(0, i), gains(1, i));
  }
}

void Run(Batch& batch, const PolicyTable& features, const GainMap& gain_map, const PolicyNetwork* policy,
         const Durations& durations_ns, const Durations& flows, const Array<std::int64_t, 1>& next_steps,
         const Array<const double, 1>& preferences, const Array<double, 2>& gains, const Array<float, 3>& observations,
         const Array<const float, 3>& noise, const Array<float, 3>& actions, const Array<double, 4>& flow_rows,
         const Array<double, 3>& link_rows, const Array<double, 2>& times_s, const Array<std::uint8_t, 2>& is_over,
         const Array<std::uint8_t, 2>& is_complete) {
  const std::size_t networks = batch.size();
  const std::size_t steps = actions.shape(0);
  const std::size_t count = actions.shape(1);
  const std::size_t length = observations.shape(2);
  CheckShape("durations_ns", durations_ns, {networks});
  CheckShape("flows", flows, {count});
  CheckShape("next_steps", next_steps, {networks});
  CheckShape("preferences", preferences, {count});
  CheckShape("gains", gains, {2, count});
  CheckShape("observations", observations, {steps + 1, count, length});
  CheckShape("actions", actions, {steps, networks * (count / networks), 2});
  CheckShape("noise", noise, {steps, count, 2});
  CheckShape("flow_rows", flow_rows, {steps, networks, batch.max_flows(), kColumnCount<FlowRow>});
  CheckShape("link_rows", link_rows, {steps, networks, kColumnCount<LinkRow>});
  CheckShape("times_s", times_s, {steps, networks});
  CheckShape("is_over", is_over, {steps, networks});
  CheckShape("is_complete", is_complete, {steps, networks});
  if (features.columns() != kColumnCount<FlowRow> + 4 || length < features.size()) {
    throw std::invalid_argument("the features must be of the columns of rows, two gains, preference and took_part");
  }
  if (policy && (policy->inputs() != length || policy->state_size() > 0)) {
    throw std::invalid_argument("the policy must take " + std::to_string(length) + " values and have no LSTM");
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

nb::typed<nb::dict, std::string, std::string> MeaningByName(std::span<const Column> columns) {
  nb::typed<nb::dict, std::string, std::string> meanings;
  for (const Column& column : columns) meanings[column.name] = column.meaning;
  return meanings;
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "The native engine: many bottlenecks in this process (C++).";

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
      .def("steer", &Batch::Steer, "index"_a, "flow"_a, "cwnd_gain"_a, "pacing_gain"_a,
           "Set the gains of an agent's flow. Raises IndexError or ValueError.")
      .def("steer_all", &SteerAll, "indices"_a, "flows"_a, "gains"_a,
           "Call `steer` for each of M flows; `gains` has the shape (2, M). Raises IndexError or ValueError.")
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
           "preferences"_a, "gains"_a, "observations"_a, "noise"_a, "actions"_a, "flow_rows"_a, "link_rows"_a,
           "times_s"_a, "is_over"_a, "is_complete"_a,
           "Make the steps of a rollout, from `next_steps` on, to the last one or to the end of each episode; see "
           "envs/native/rollout.h for the arrays. Raises ValueError. Releases the GIL.")
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

  m.def("flow_columns", [] { return MeaningByName(kFlowColumns); }, "The columns of a flow's row, with their meaning.");
  m.def(
      "link_columns", [] { return MeaningByName(kLinkColumns); }, "The columns of the link's row, with their meaning.");
}

}  // namespace bbrgym
