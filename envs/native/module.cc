// bbrgym._native: the built-in engine, and the columns of every engine's rows.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "envs/model/rows.h"
#include "envs/model/scenario_binding.h"
#include "envs/native/batch.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace bbrgym {
namespace {

using Durations = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

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

  nb::class_<Batch>(m, "Batch", "Scenarios that are stepped together; none affects another.")
      .def(nb::init<std::size_t, std::size_t, std::size_t>(), "size"_a, "max_flows"_a, "threads"_a = 1)
      .def(
          "reset",
          [](Batch& batch, std::size_t index, const PlainScenario& scenario, std::uint64_t seed) {
            batch.Reset(index, RecordFromDict<Scenario>(scenario), seed);
          },
          "index"_a, "scenario"_a, "seed"_a,
          "Start `Scenario.to_dict()` at time 0. Raises ValueError for what cannot be simulated.")
      .def("steer", &Batch::Steer, "index"_a, "flow"_a, "cwnd_gain"_a, "pacing_gain"_a,
           "Set the gains of an agent's flow. Raises IndexError or ValueError.")
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
