// bbrgym._native: the built-in engine.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "envs/native/batch.h"
#include "envs/native/scenario_binding.h"

namespace nb = nanobind;
using namespace nb::literals;

/// `Scenario.to_dict()`.
using PlainScenario = nb::typed<nb::dict, nb::str, nb::object>;

namespace {

using Durations = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

/// A read-only NumPy view of memory that the batch owns.
template <typename Value>
auto View(nb::handle owner, std::vector<Value>& values, std::vector<std::size_t> shape) {
  return nb::ndarray<nb::numpy, const Value>(values.data(), shape.size(), shape.data(), owner);
}

std::vector<std::string> Names(const std::vector<const char*>& names) {
  return {names.begin(), names.end()};
}

}  // namespace

NB_MODULE(_native, m) {
  using namespace bbrgym;
  m.doc() = "Many bottlenecks in this process (C++).";

  nb::class_<Batch>(m, "Batch", "Scenarios that are simulated together, each on its own.")
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
                                          " entries: give one a scenario, " + std::to_string(batch.size()));
            }
            const std::int64_t* durations = durations_ns.data();
            const nb::gil_scoped_release release;
            batch.Step(durations);
          },
          "durations_ns"_a,
          "Simulate so much more of each scenario, or to its end; 0 leaves one as it is. The GIL is released.")
      .def_prop_ro(
          "flow_rows",
          [](nb::handle_t<Batch> self) {
            auto& batch = nb::cast<Batch&>(self);
            return View(self, batch.flow_rows(), {batch.size(), batch.max_flows(), FlowColumns().size()});
          },
          "Shape (size, max_flows, FLOW_COLUMNS), the rows of the last step; a view that later steps change.")
      .def_prop_ro(
          "link_rows",
          [](nb::handle_t<Batch> self) {
            auto& batch = nb::cast<Batch&>(self);
            return View(self, batch.link_rows(), {batch.size(), LinkColumns().size()});
          },
          "Shape (size, LINK_COLUMNS), likewise.")
      .def_prop_ro(
          "times_s",
          [](nb::handle_t<Batch> self) {
            auto& batch = nb::cast<Batch&>(self);
            return View(self, batch.times_s(), {batch.size()});
          },
          "Shape (size,), simulated time in s, likewise.")
      .def_prop_ro(
          "is_over",
          [](nb::handle_t<Batch> self) {
            auto& batch = nb::cast<Batch&>(self);
            return View(self, batch.is_over(), {batch.size()});
          },
          "Shape (size,), uint8: the scenario's duration has passed, or all is delivered.")
      .def_prop_ro(
          "is_complete",
          [](nb::handle_t<Batch> self) {
            auto& batch = nb::cast<Batch&>(self);
            return View(self, batch.is_complete(), {batch.size()});
          },
          "Shape (size,), uint8: every flow was finite and has delivered all its bytes.");

  m.def("flow_columns", [] { return Names(FlowColumns()); }, "The columns of a flow's row, in order.");
  m.def("link_columns", [] { return Names(LinkColumns()); }, "The columns of the link's row, in order.");
}
