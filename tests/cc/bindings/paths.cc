// What lies between the hosts of the Linux engine, driven by hand.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>
#include <vector>

#include "envs/linux/paths.h"
#include "envs/model/scenario_binding.h"
#include "tests/cc/bindings/bind.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace bbrgym {

namespace {

using Arrived = std::tuple<Nanoseconds, std::uint32_t, PacketNumber, bool, bool>;

}  // namespace

void BindPaths(nb::module_& m) {
  nb::class_<Paths>(m, "Paths", "What lies between the hosts of the Linux engine; times in ns.")
      .def(
          "__init__",
          [](Paths* place, const PlainScenario& plain, std::uint64_t seed) {
            const auto scenario = RecordFromDict<Scenario>(plain);
            scenario.Check();
            new (place) Paths(scenario, EpisodeSeeds(seed, scenario.flows.size()));
          },
          "scenario"_a, "seed"_a)
      .def(
          "send",
          [](Paths& paths, Nanoseconds now, std::uint32_t flow, PacketNumber number, std::int32_t bytes,
             std::uint8_t ecn) {
            paths.Send(now, {.packet = {.number = number, .bytes = bytes, .ecn = static_cast<Ecn>(ecn)}, .flow = flow});
          },
          "now"_a, "flow"_a, "number"_a, "bytes"_a, "ecn"_a = 0, "A packet of so much payload leaves its sender.")
      .def(
          "reply",
          [](Paths& paths, Nanoseconds now, std::uint32_t flow, PacketNumber number) {
            paths.Return(now, {.packet = {.number = number}, .flow = flow});
          },
          "now"_a, "flow"_a, "number"_a, "A packet without payload leaves its receiver.")
      .def(
          "advance",
          [](Paths& paths, Nanoseconds now) {
            paths.Advance(now);
            std::vector<Arrived> arrived;
            for (const Paths::Arrival& arrival : paths.arrivals()) {
              const DataPacket& packet = arrival.packet.packet;
              arrived.emplace_back(arrival.time, arrival.packet.flow, packet.number, arrival.is_data,
                                   packet.ecn == Ecn::kCe);
            }
            paths.arrivals().clear();
            return arrived;
          },
          "now"_a, "Return (time, flow, number, is_data, is_marked) of what arrives at a host until `now`.")
      .def(
          "take_lost",
          [](Paths& paths) {
            std::vector<std::pair<std::uint32_t, PacketNumber>> lost;
            for (const Paths::Packet& packet : paths.lost()) lost.emplace_back(packet.flow, packet.packet.number);
            paths.lost().clear();
            return lost;
          },
          "Return (flow, number) of what was dropped or lost since the last call.")
      .def("next_event",
           [](const Paths& paths) {
             const Nanoseconds next = paths.NextEvent();
             return next == kNever ? std::nullopt : std::optional(next);
           })
      .def(
          "row",
          [](Paths& paths, Nanoseconds now) {
            const auto values = ValuesOf(paths.GetRow(now));
            return std::vector<double>(values.begin(), values.end());
          },
          "now"_a, "Return LINK_COLUMNS since the beginning.");
}

}  // namespace bbrgym
