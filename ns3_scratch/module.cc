// bbrgym._ns3: the ns-3 engine in C++. It runs in a worker process of its own
// (bbrgym.envs.worker.worker).

#include "scoreboard.h"
#include "simulation.h"

#include "envs/model/scenario_binding.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;
using namespace nb::literals;

NB_MODULE(_ns3, m)
{
    using namespace bbrgym;
    m.doc() =
        "One shared bottleneck in ns-3 (C++). Its state is global: one Simulation per process.";

    nb::class_<Simulation>(m, "Simulation", "One scenario in ns-3, stepped by duration.")
        .def(nb::init<const std::string&, double>(),
             "transport"_a = "tcp",
             "access_mbps"_a = 1000.0,
             "The transport is `tcp` or `quic`, for all flows. Links other than the bottleneck "
             "have this rate, "
             "or ten times the bottleneck's if that is more. Raises ValueError for another "
             "transport.")
        .def(
            "reset",
            [](Simulation& simulation, const PlainScenario& scenario, uint64_t seed) {
                simulation.Reset(RecordFromDict<Scenario>(scenario), seed);
            },
            "scenario"_a,
            "seed"_a,
            "Start `Scenario.to_dict()` at time 0. Raises ValueError for what cannot be simulated.")
        .def("set_gains",
             &Simulation::SetGains,
             "flow"_a,
             "cwnd_gain"_a,
             "pacing_gain"_a,
             "Set the gains of an agent's flow. Raises IndexError or ValueError.")
        .def("step",
             &Simulation::Step,
             "duration_ns"_a,
             nb::call_guard<nb::gil_scoped_release>(),
             "Simulate for a duration, or to the scenario's end. Releases the GIL.")
        .def("rows",
             &Simulation::Rows,
             "[time_s, is_over, is_complete, *LINK_COLUMNS, *FLOW_COLUMNS of flow 0, ...] of the "
             "last step.");

    m.def(
        "use_fast_scoreboard",
        &UseFastScoreboard,
        "is_fast"_a,
        "Choose between our short look-ups in ns-3's list of sent packets and its own; the results "
        "are the same.");
}
