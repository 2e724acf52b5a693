// bbrgym._linux: a scenario in real time on this machine's kernel, which runs in a worker process of its own; and flows
// between two machines.

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "envs/linux/linux_network.h"
#include "envs/linux/tcp_binding.h"
#include "envs/linux/udp_binding.h"
#include "envs/model/scenario_binding.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace bbrgym {
namespace {

std::vector<double> RowsOf(const LinuxNetwork& network) {
  std::vector<double> rows{static_cast<double>(network.now()) / 1e9, network.IsOver() ? 1.0 : 0.0,
                           network.IsComplete() ? 1.0 : 0.0};
  const auto append = [&rows](const auto& values) { rows.insert(rows.end(), values.begin(), values.end()); };
  append(ValuesOf(network.GetLinkRow()));
  for (std::size_t flow = 0; flow < network.scenario().flows.size(); ++flow) append(ValuesOf(network.GetFlowRow(flow)));
  return rows;
}

nb::typed<nb::dict, std::string, double> TimingOf(LinuxNetwork& network) {
  const LinuxNetwork::Timing timing = network.GetTiming();
  nb::typed<nb::dict, std::string, double> plain;
  const auto set = [&plain](const char* name, auto value) { plain[name] = static_cast<double>(value); };
  set("packets", timing.departures.packets);
  set("late_mean_ms", static_cast<double>(timing.departures.mean) / 1e6);
  set("late_p999_ms", static_cast<double>(timing.departures.p999) / 1e6);
  set("late_max_ms", static_cast<double>(timing.departures.most) / 1e6);
  set("decision_late_max_ms", static_cast<double>(timing.latest_decision) / 1e6);
  set("missed_steps", timing.missed_steps);
  set("step_late_max_ms", static_cast<double>(timing.latest_step) / 1e6);
  set("refused", timing.refused);
  return plain;
}

}  // namespace

NB_MODULE(_linux, m) {
  m.doc() = "One shared bottleneck on this machine's kernel, in real time, and flows between two machines (C++).";

  nb::class_<LinuxNetwork>(m, "Simulation", "One scenario in real time, stepped by duration.")
      .def(nb::init<std::string>(), "agent_file"_a,
           "Make it while this process has one thread: it may need a user namespace. Raises RuntimeError if this "
           "machine does not let it make what it needs.")
      .def(
          "reset",
          [](LinuxNetwork& network, const PlainScenario& scenario, std::uint64_t seed) {
            network.Reset(RecordFromDict<Scenario>(scenario), seed);
          },
          "scenario"_a, "seed"_a, "Start `Scenario.to_dict()` now. Raises ValueError for what cannot run here.")
      .def("set_gains", &LinuxNetwork::SetGains, "flow"_a, "cwnd_gain"_a, "pacing_gain"_a,
           "Set the gains of an agent's flow. Raises IndexError or ValueError.")
      .def("step", &LinuxNetwork::Step, "duration_ns"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Wait for the end of the step. Releases the GIL.")
      .def("rows", &RowsOf,
           "Return [time_s, is_over, is_complete, *LINK_COLUMNS, *FLOW_COLUMNS of flow 0, ...] of the last step.")
      .def("timing", &TimingOf, "Return how late packets, decisions and steps were since the episode began, in ms.");
  BindUdp(m);
  BindTcp(m);
}

}  // namespace bbrgym
