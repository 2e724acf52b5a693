// bbrgym._native: the built-in engine, and the columns of every engine's rows.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "envs/model/rows.h"
#include "envs/model/scenario_binding.h"
#include "envs/native/batch.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace bbrgym {
namespace {

using Durations = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

/// A read-only NumPy view of memory that the batch owns.
template <typename Value>
auto View(nb::handle batch, const Value* values, std::vector<std::size_t> shape) {
  return nb::ndarray<nb::numpy, const Value>(values, shape.size(), shape.data(), batch);
}

/// A view of rows; the last dimension has their columns.
template <typename Row>
auto ViewRows(nb::handle batch, const std::vector<Row>& rows, std::vector<std::size_t> shape) {
  shape.push_back(kColumnCount<Row>);
  return View(batch, reinterpret_cast<const double*>(rows.data()), std::move(shape));
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
      .def_prop_ro(
          "flow_rows",
          [](nb::handle_t<Batch> self) {
            auto& batch = nb::cast<Batch&>(self);
            return ViewRows(self, batch.flow_rows(), {batch.size(), batch.max_flows()});
          },
          "Rows of the last step, shape (size, max_flows, FLOW_COLUMNS); a view that later steps change.")
      .def_prop_ro(
          "link_rows",
          [](nb::handle_t<Batch> self) {
            auto& batch = nb::cast<Batch&>(self);
            return ViewRows(self, batch.link_rows(), {batch.size()});
          },
          "Rows of the links, shape (size, LINK_COLUMNS); a view as well.")
      .def_prop_ro(
          "times_s",
          [](nb::handle_t<Batch> self) {
            auto& batch = nb::cast<Batch&>(self);
            return View(self, batch.times_s().data(), {batch.size()});
          },
          "Simulated times in s, shape (size,); a view as well.")
      .def_prop_ro(
          "is_over",
          [](nb::handle_t<Batch> self) {
            auto& batch = nb::cast<Batch&>(self);
            return View(self, batch.is_over().data(), {batch.size()});
          },
          "Whether the duration has passed or all data is delivered: uint8, shape (size,); a view as well.")
      .def_prop_ro(
          "is_complete",
          [](nb::handle_t<Batch> self) {
            auto& batch = nb::cast<Batch&>(self);
            return View(self, batch.is_complete().data(), {batch.size()});
          },
          "Whether every flow is finite and has delivered all its bytes: uint8, shape (size,); a view as well.");

  m.def("flow_columns", [] { return MeaningByName(kFlowColumns); }, "The columns of a flow's row, with their meaning.");
  m.def(
      "link_columns", [] { return MeaningByName(kLinkColumns); }, "The columns of the link's row, with their meaning.");
}

}  // namespace bbrgym
