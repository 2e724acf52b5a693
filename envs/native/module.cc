// bbrgym._native: the built-in engine.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <new>
#include <optional>
#include <string>
#include <vector>

#include "envs/native/ack_jitter.h"
#include "envs/native/batch.h"
#include "envs/native/codel.h"
#include "envs/native/loss_model.h"
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

  nb::class_<CodelQueue>(m, "CodelQueue", "A CoDel queue (RFC 8289) of numbered packets, for tests.")
      .def(
          "__init__",
          [](CodelQueue* self, std::int64_t target_ns, std::int64_t interval_ns, std::int64_t packet_bytes) {
            new (self) CodelQueue();
            self->Reset(target_ns, interval_ns, packet_bytes);
          },
          "target_ns"_a, "interval_ns"_a, "packet_bytes"_a)
      .def(
          "push",
          [](CodelQueue& queue, std::int64_t now_ns, std::uint64_t number, std::int64_t bytes) {
            QueuedPacket packet;
            packet.packet.number = number;
            queue.Push(now_ns, packet, bytes);
          },
          "now_ns"_a, "number"_a, "bytes"_a, "A packet arrives.")
      .def(
          "pop",
          [](CodelQueue& queue, std::int64_t now_ns) {
            QueuedPacket packet;
            return queue.Pop(now_ns, packet) ? std::optional(packet.packet.number) : std::nullopt;
          },
          "now_ns"_a, "The number of the packet that leaves, or None; those before it are dropped.")
      .def("__len__", &CodelQueue::size)
      .def_prop_ro("bytes", &CodelQueue::bytes)
      .def_prop_ro("drops", &CodelQueue::drops);

  m.def(
      "draw_losses",
      [](double loss, std::optional<double> burst_packets, std::uint64_t seed, std::size_t count) {
        LossModel model(loss, burst_packets, seed);
        std::vector<bool> losses(count);
        for (std::size_t i = 0; i < count; ++i) losses[i] = model.CanLose() && model.IsNextLost();
        return losses;
      },
      "loss"_a, "loss_burst_packets"_a, "seed"_a, "count"_a, "Which of `count` packets the link loses, for tests.");
  m.def(
      "draw_arrivals",
      [](double jitter_ms, std::int64_t delay_ns, std::uint64_t seed, const std::vector<std::int64_t>& sent_ns) {
        AckJitter jitter(jitter_ms, seed);
        std::vector<std::int64_t> arrivals;
        for (const std::int64_t now : sent_ns) arrivals.push_back(jitter.Arrival(now, delay_ns));
        return arrivals;
      },
      "jitter_ms"_a, "delay_ns"_a, "seed"_a, "sent_ns"_a,
      "When acknowledgements sent at these times arrive, for tests.");

  m.def("scenario_defaults", &FieldDefaults<Scenario>, "The fields of a scenario, in order.");
  m.def("flow_defaults", &FieldDefaults<Flow>, "The fields of a flow, in order.");
  m.def("flow_columns", [] { return Names(FlowColumns()); }, "The columns of a flow's row, in order.");
  m.def("link_columns", [] { return Names(LinkColumns()); }, "The columns of the link's row, in order.");
}
