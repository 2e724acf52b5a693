// Controllers, a policy, and the estimators.

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baselines/cc/extra_acked.h"
#include "baselines/cc/full_pipe.h"
#include "baselines/cc/hystart.h"
#include "baselines/cc/min_rtt.h"
#include "baselines/cc/policy.h"
#include "baselines/cc/policy/features.h"
#include "baselines/cc/policy/network.h"
#include "baselines/cc/prr.h"
#include "baselines/cc/registry.h"
#include "baselines/cc/round_counter.h"
#include "baselines/cc/windowed_max.h"
#include "tests/cc/bindings/bind.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace bbrgym {
namespace {

struct MetricEntry {
  const char* name;
  const char* meaning;
};

constexpr MetricEntry kMetrics[] = {
#define METRIC(name, meaning) {#name, meaning},
#include "baselines/cc/metrics.def"
#undef METRIC
};

nb::dict MetricsByName(const Metrics& metrics) {
  nb::dict by_name;
  for (std::size_t i = 0; i < Metrics::kSize; ++i) by_name[kMetrics[i].name] = metrics.values()[i];
  return by_name;
}

std::shared_ptr<const PolicyNetwork> ParsePolicy(const nb::bytes& bytes) {
  return PolicyNetwork::Parse(std::string_view(bytes.c_str(), bytes.size()));
}

double TimeDecision(const nb::bytes& bytes, std::int64_t repeats) {
  const auto policy = ParsePolicy(bytes);
  PolicyNetwork::Memory memory = policy->MakeMemory();
  PolicyColumns columns;
  for (const auto& [name, column] : PolicyColumnsByName()) columns.*column = 1.5;
  const std::clock_t begin = std::clock();
  for (std::int64_t i = 0; i < repeats; ++i) {
    policy->Observe(columns, memory);
    const Gains gains = policy->gain_map().ToGains(policy->Act(memory), columns.bdp_packets);
    columns.steered_cwnd_gain = gains.cwnd;
    columns.steered_pacing_gain = gains.pacing;
  }
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  return seconds * 1e9 / static_cast<double>(std::max<std::int64_t>(repeats, 1));
}

}  // namespace

void BindControllers(nb::module_& m) {
  m.def(
      "metrics",
      [] {
        nb::typed<nb::dict, std::string, std::string> metrics;
        for (const MetricEntry& entry : kMetrics) metrics[entry.name] = entry.meaning;
        return metrics;
      },
      "Every metric of the controllers, with its unit and meaning.");

  nb::enum_<Recovery>(m, "Recovery", "Loss recovery as the transport sees it.")
      .value("OPEN", Recovery::kOpen)
      .value("RECOVERY", Recovery::kRecovery)
      .value("LOSS", Recovery::kLoss);

  nb::class_<RateSample>(m, "RateSample", "The delivery rate that an ACK reveals; bytes, bit/s and ns.")
      .def(nb::init<>())
      .def_rw("is_valid", &RateSample::is_valid)
      .def_rw("delivery_rate", &RateSample::delivery_rate)
      .def_rw("interval", &RateSample::interval)
      .def_rw("delivered", &RateSample::delivered)
      .def_rw("prior_delivered", &RateSample::prior_delivered)
      .def_rw("is_app_limited", &RateSample::is_app_limited)
      .def_rw("tx_in_flight", &RateSample::tx_in_flight)
      .def_rw("lost_since_send", &RateSample::lost_since_send)
      .def_rw("marked_since_send", &RateSample::marked_since_send);

  nb::class_<AckEvent>(m, "AckEvent", "What one ACK says; bytes and ns.")
      .def(nb::init<>())
      .def_rw("now", &AckEvent::now)
      .def_rw("rtt", &AckEvent::rtt)
      .def_rw("bytes_acked", &AckEvent::bytes_acked)
      .def_rw("bytes_lost", &AckEvent::bytes_lost)
      .def_rw("bytes_marked", &AckEvent::bytes_marked)
      .def_rw("prior_in_flight", &AckEvent::prior_in_flight)
      .def_rw("in_flight", &AckEvent::in_flight)
      .def_rw("delivered", &AckEvent::delivered)
      .def_rw("sent", &AckEvent::sent)
      .def_rw("is_cwnd_limited", &AckEvent::is_cwnd_limited)
      .def_rw("sample", &AckEvent::sample);

  nb::class_<Decision>(m, "Decision", "What a controller wants from now on; bytes and bit/s.")
      .def_rw("cwnd", &Decision::cwnd)
      .def_rw("pacing_rate", &Decision::pacing_rate)
      .def_rw("send_quantum", &Decision::send_quantum)
      .def_rw("is_burst_whole", &Decision::is_burst_whole)
      .def_rw("is_paced", &Decision::is_paced)
      .def_rw("is_app_limited", &Decision::is_app_limited);

  nb::class_<Controller>(m, "Controller", "One flow's congestion control; `make` makes it.")
      .def("on_ack", &Controller::OnAck, "ack"_a)
      .def("on_recovery", &Controller::OnRecovery, "state"_a, "now"_a, "in_flight"_a)
      .def("on_spurious_recovery", &Controller::OnSpuriousRecovery)
      .def("on_restart", &Controller::OnRestart, "now"_a)
      .def("steer", &Controller::Steer, "cwnd_gain"_a, "pacing_gain"_a)
      .def("decision", &Controller::decision)
      .def("metrics", [](const Controller& controller) -> nb::typed<nb::dict, std::string, double> {
        return MetricsByName(controller.metrics());
      });
  nb::class_<PolicyController, Controller>(m, "PolicyController", "What `make` makes of `policy`.")
      .def_prop_ro("observation", &PolicyController::observation, "What it decided by last.");
  m.def(
      "make",
      [](const std::string& name, const ParameterValues& parameters, Bytes packet_bytes, Bytes initial_cwnd,
         Nanoseconds initial_rtt, std::uint64_t seed, const std::optional<nb::bytes>& policy) {
        return MakeController(name,
                              {.packet_bytes = packet_bytes,
                               .initial_cwnd = initial_cwnd,
                               .initial_rtt = initial_rtt,
                               .seed = seed,
                               .policy = policy ? ParsePolicy(*policy) : nullptr},
                              parameters);
      },
      "name"_a, "parameters"_a = ParameterValues{}, "packet_bytes"_a = 1000, "initial_cwnd"_a = 10'000,
      "initial_rtt"_a = 0, "seed"_a = 1, "policy"_a = nb::none(),
      "A controller for one connection; `policy` is what the controller of that name runs. Raises ValueError.");
}

void BindPolicy(nb::module_& m) {
  m.def(
      "policy_columns",
      [] {
        std::vector<std::string> names;
        for (const auto& [name, column] : PolicyColumnsByName()) names.emplace_back(name);
        return names;
      },
      "Return the columns of a flow's row that the features of a policy can be made of.");
  m.def(
      "policy_interval",
      [](const nb::bytes& bytes, Nanoseconds min_rtt) { return ParsePolicy(bytes)->Interval(min_rtt); }, "policy"_a,
      "min_rtt"_a, "Return the time between two decisions of a flow with this min_rtt; ns.");
  m.def("policy_time_ns", &TimeDecision, "policy"_a, "repeats"_a,
        "Return the processor time of a decision, from its columns to its gains: the mean of this many, in ns.");
}

void BindEstimators(nb::module_& m) {
  nb::class_<WindowedMax<BitsPerSecond>>(m, "WindowedMax", "Maximum of a stream over a sliding window.")
      .def(nb::init<std::int64_t>(), "window"_a)
      .def("update", &WindowedMax<BitsPerSecond>::Update, "time"_a, "value"_a)
      .def("best", &WindowedMax<BitsPerSecond>::Best);
  nb::class_<RoundCounter>(m, "RoundCounter", "Counts packet-timed round trips.")
      .def(nb::init<>())
      .def("on_delivered", &RoundCounter::OnDelivered, "prior_delivered"_a, "delivered"_a)
      .def("restart", &RoundCounter::Restart, "delivered"_a)
      .def("count", &RoundCounter::count);
  nb::class_<FullPipe>(m, "FullPipe", "Tells when Startup has filled the pipe.")
      .def(nb::init<double, std::int64_t>(), "growth"_a, "rounds"_a)
      .def("on_round", &FullPipe::OnRound, "bandwidth"_a)
      .def("forget_bandwidth", &FullPipe::ForgetBandwidth)
      .def("is_full", &FullPipe::is_full);
  nb::class_<MinRtt>(m, "MinRtt", "BBR's RTprop filter; ns.")
      .def(nb::init<Nanoseconds>(), "window"_a)
      .def("on_ack", &MinRtt::OnAck, "now"_a, "rtt"_a)
      .def("refresh", &MinRtt::Refresh, "now"_a)
      .def("value", &MinRtt::value);
  nb::class_<ExtraAcked>(m, "ExtraAcked", "How far ACKs arrive in bursts.")
      .def(nb::init<>())
      .def("on_ack", &ExtraAcked::OnAck, "now"_a, "acked"_a, "bandwidth"_a, "cwnd"_a, "is_round_start"_a)
      .def("restart", &ExtraAcked::Restart)
      .def("most", &ExtraAcked::Most);
  nb::class_<HyStart>(m, "HyStart", "HyStart++ (RFC 9406).")
      .def(nb::init<>())
      .def("on_ack", &HyStart::OnAck, "rtt"_a, "acked"_a, "prior_delivered"_a, "delivered"_a)
      .def("is_done", &HyStart::IsDone);
  nb::class_<ProportionalRateReduction>(m, "ProportionalRateReduction", "PRR (RFC 6937); bytes.")
      .def(nb::init<>())
      .def("start", &ProportionalRateReduction::Start, "in_flight"_a, "sent"_a)
      .def("cwnd", &ProportionalRateReduction::Cwnd, "acked"_a, "in_flight"_a, "sent"_a, "ssthresh"_a,
           "packet_bytes"_a);
}

}  // namespace bbrgym
