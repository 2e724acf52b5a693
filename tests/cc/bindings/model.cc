// The model of a path: scenario, queue, losses, the way back.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "envs/model/dualpi2.h"
#include "envs/model/loss_model.h"
#include "envs/model/pie.h"
#include "envs/model/policer.h"
#include "envs/model/queue_discipline.h"
#include "envs/model/reordering.h"
#include "envs/model/return_path.h"
#include "envs/model/scenario_binding.h"
#include "tests/cc/bindings/bind.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace bbrgym {

namespace {

using Left = std::pair<PacketNumber, bool>;

struct TestQueue {
  TestQueue(const PlainScenario& scenario, std::uint64_t seed)
      : discipline(MakeQueueDiscipline(RecordFromDict<Scenario>(scenario), seed, tally)) {}

  QueueTally tally;
  std::unique_ptr<QueueDiscipline> discipline;
};

}  // namespace

void BindModel(nb::module_& m) {
  nb::class_<TestQueue>(m, "QueueDiscipline", "A queue of numbered packets with the discipline of a scenario.")
      .def(nb::init<const PlainScenario&, std::uint64_t>(), "scenario"_a, "seed"_a)
      .def(
          "push",
          [](TestQueue& queue, std::int64_t now_ns, std::uint64_t number, std::int32_t bytes, std::uint8_t ecn,
             std::uint32_t flow) {
            const DataPacket packet{.number = number, .bytes = bytes - kHeaderBytes, .ecn = static_cast<Ecn>(ecn)};
            queue.discipline->Push(now_ns, {.packet = packet, .flow = flow});
          },
          "now_ns"_a, "number"_a, "bytes"_a, "ecn"_a = 0, "flow"_a = 0,
          "A packet of `bytes` on the wire, with this ECN field, arrives.")
      .def(
          "pop",
          [](TestQueue& queue, std::int64_t now_ns) {
            QueuedPacket packet;
            std::optional<Left> left;
            if (queue.discipline->Pop(now_ns, packet)) left = {packet.packet.number, packet.packet.ecn == Ecn::kCe};
            return left;
          },
          "now_ns"_a,
          "Return the number of the packet that leaves and whether it is marked, or None; packets before it are "
          "dropped.")
      .def("__len__", [](const TestQueue& queue) { return queue.discipline->size(); })
      .def_prop_ro("is_full", [](const TestQueue& queue) { return queue.discipline->IsFull(); })
      .def_prop_ro("bytes", [](const TestQueue& queue) { return queue.discipline->bytes(); })
      .def_prop_ro("drops", [](const TestQueue& queue) { return queue.tally.drops; })
      .def_prop_ro("marks", [](const TestQueue& queue) { return queue.tally.marks; })
      .def_prop_ro(
          "drop_probability",
          [](const TestQueue& queue) { return dynamic_cast<const PieQueue&>(*queue.discipline).drop_probability(); },
          "Of PIE.")
      .def_prop_ro(
          "base_probability",
          [](const TestQueue& queue) {
            return dynamic_cast<const DualPi2Queue&>(*queue.discipline).base_probability();
          },
          "Of DualPI2.");

  m.def(
      "draw_losses",
      [](const PlainScenario& scenario, std::uint64_t seed, std::size_t count, std::int64_t interval_ns) {
        LossModel model(RecordFromDict<Scenario>(scenario), seed);
        std::vector<bool> losses(count);
        for (std::size_t i = 0; i < count; ++i) {
          losses[i] = model.CanLose() && model.IsNextLost(static_cast<std::int64_t>(i) * interval_ns);
        }
        return losses;
      },
      "scenario"_a, "seed"_a, "count"_a, "interval_ns"_a = 0,
      "Return which of `count` packets, which leave at this interval, the link loses.");
  m.def(
      "draw_arrivals",
      [](const PlainScenario& flow, std::uint64_t seed, const std::vector<std::int64_t>& sent_ns, double forward_ms,
         std::int64_t ahead_ns) {
        ReturnPath path(RecordFromDict<Flow>(flow), forward_ms, seed, ahead_ns);
        std::vector<std::optional<std::int64_t>> arrivals;
        for (const std::int64_t now : sent_ns) {
          const Nanoseconds arrival = path.Arrival(now);
          arrivals.push_back(arrival == kNever ? std::nullopt : std::optional(arrival));
        }
        return arrivals;
      },
      "flow"_a, "seed"_a, "sent_ns"_a, "forward_ms"_a = 0.0, "ahead_ns"_a = 0,
      "Return when acknowledgements of a flow, sent at these times, arrive; None for those that are lost.");

  m.def(
      "draw_lateness",
      [](const PlainScenario& scenario, std::uint64_t seed, const std::vector<std::int64_t>& payloads) {
        Reordering reordering(RecordFromDict<Scenario>(scenario), seed);
        std::vector<std::int64_t> delays;
        for (const std::int64_t payload : payloads) delays.push_back(reordering.NextDelay(payload));
        return delays;
      },
      "scenario"_a, "seed"_a, "payloads"_a, "Return how late packets of these payloads are, in ns.");
  m.def(
      "police",
      [](const PlainScenario& scenario, const std::vector<std::pair<std::int64_t, std::int64_t>>& packets) {
        Policer policer(RecordFromDict<Scenario>(scenario));
        std::vector<bool> admitted;
        for (const auto& [now_ns, bytes] : packets) admitted.push_back(policer.Admits(now_ns, bytes));
        return admitted;
      },
      "scenario"_a, "packets"_a, "Return which packets (time in ns, bytes on the wire) the policer admits.");

  m.def(
      "queue_packets", [](const PlainScenario& scenario) { return RecordFromDict<Scenario>(scenario).QueuePackets(); },
      "scenario"_a, "The buffer of a scenario in packets.");
}

}  // namespace bbrgym
