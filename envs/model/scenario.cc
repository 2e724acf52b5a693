#include "envs/model/scenario.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace bbrgym {

namespace {

constexpr std::pair<const char*, QueueKind> kQueues[] = {
    {"droptail", QueueKind::kDroptail}, {"codel", QueueKind::kCodel},     {"pie", QueueKind::kPie},
    {"fq_codel", QueueKind::kFqCodel},  {"dualpi2", QueueKind::kDualPi2},
};

constexpr std::pair<const char*, FlowPath> kPaths[] = {
    {"forward", FlowPath::kForward},
    {"first", FlowPath::kFirstHop},
    {"second", FlowPath::kSecondHop},
    {"reverse", FlowPath::kReverse},
};

/// Throws std::invalid_argument for a name that is not known; `what` is named.
template <typename Kind, std::size_t kCount>
Kind Find(const std::pair<const char*, Kind> (&known)[kCount], const char* what, const std::string& wanted) {
  std::string names;
  for (const auto& [name, kind] : known) {
    if (wanted == name) return kind;
    names += std::string(names.empty() ? "" : ", ") + name;
  }
  throw std::invalid_argument(std::string("unknown ") + what + " '" + wanted + "'; known: " + names);
}

/// Throws std::invalid_argument unless a flow has a `kind` (a policy, a file) exactly if that is its algorithm.
void CheckRuns(const Flow& flow, const std::string& kind, bool has_it) {
  if ((flow.algorithm == kind) == has_it) return;
  throw std::invalid_argument(
      "a flow of algorithm '" + flow.algorithm + "' " +
      (has_it ? "cannot have a " + kind + ": only '" + kind + "' runs one" : "needs a " + kind));
}

std::optional<Scenario> PlainLink(std::optional<double> rate_mbps, std::int64_t buffer_packets,
                                  std::int64_t packet_bytes) {
  if (!rate_mbps) return std::nullopt;
  Scenario link;
  link.rate_mbps = *rate_mbps;
  link.buffer_packets = buffer_packets;
  link.packet_bytes = packet_bytes;
  return link;
}

}  // namespace

Ecn Flow::Ect() const {
  if (!ecn) return Ecn::kNotEct;
  if (*ecn == "classic") return Ecn::kEct0;
  if (*ecn == "l4s") return Ecn::kEct1;
  throw std::invalid_argument("unknown ecn '" + *ecn + "'; known: classic, l4s");
}

double Flow::ForwardMs() const {
  double shortest_ms = rtt_ms;
  for (const auto& [time_s, rtt] : rtt_schedule) shortest_ms = std::min(shortest_ms, rtt);
  return shortest_ms / 2.0;
}

FlowPath Flow::Path() const {
  return Find(kPaths, "path", path);
}

void Scenario::Check() const {
  if (flows.empty()) throw std::invalid_argument("a scenario needs at least one flow");
  static_cast<void>(Queue());
  for (const Flow& flow : flows) {
    static_cast<void>(flow.Ect());
    if (flow.on_off != "fixed" && flow.on_off != "exponential") {
      throw std::invalid_argument("unknown on_off '" + flow.on_off + "'; known: fixed, exponential");
    }
    const FlowPath path = flow.Path();
    const bool needs_second = path == FlowPath::kFirstHop || path == FlowPath::kSecondHop;
    if ((needs_second && !second_rate_mbps) || (path == FlowPath::kReverse && !reverse_rate_mbps)) {
      throw std::invalid_argument("a flow with path '" + flow.path + "' needs " +
                                  (needs_second ? "second_rate_mbps" : "reverse_rate_mbps"));
    }
    CheckRuns(flow, "policy", flow.policy != nullptr);
    CheckRuns(flow, "file", flow.file != nullptr);
  }
}

void Scenario::CheckSteerable(std::int64_t flow) const {
  if (flow < 0 || static_cast<std::size_t>(flow) >= flows.size()) {
    throw std::out_of_range("flow must be in [0, " + std::to_string(flows.size()) + "), got " + std::to_string(flow));
  }
  const std::string& algorithm = flows[static_cast<std::size_t>(flow)].algorithm;
  if (algorithm != "agent") {
    throw std::invalid_argument("cannot steer a flow of algorithm '" + algorithm + "': only 'agent' takes gains");
  }
}

std::optional<Scenario> Scenario::SecondLink() const {
  return PlainLink(second_rate_mbps, second_buffer_packets, packet_bytes);
}

std::optional<Scenario> Scenario::ReverseLink() const {
  return PlainLink(reverse_rate_mbps, reverse_buffer_packets, packet_bytes);
}

double Scenario::LongestRttSeconds() const {
  double longest_ms = 0.0;
  for (const Flow& flow : flows) longest_ms = std::max(longest_ms, flow.rtt_ms);
  return longest_ms / 1e3;
}

double Scenario::LinkDelayMs() const {
  double shortest_ms = flows.front().ForwardMs();
  for (const Flow& flow : flows) shortest_ms = std::min(shortest_ms, flow.ForwardMs());
  return shortest_ms / 2.0;
}

double Scenario::BdpBytes() const {
  return rate_mbps * 1e6 * LongestRttSeconds() / 8.0;
}

double Scenario::FirstRateMbps() const {
  const bool is_scheduled = !rate_schedule.empty() && rate_schedule.front().first <= 0.0;
  return is_scheduled ? rate_schedule.front().second : rate_mbps;
}

double Scenario::LargestRateMbps() const {
  double largest = rate_mbps;
  for (const auto& [time_s, rate] : rate_schedule) largest = std::max(largest, rate);
  for (const auto& further : {second_rate_mbps, reverse_rate_mbps}) largest = std::max(largest, further.value_or(0.0));
  return largest;
}

std::int64_t Scenario::QueuePackets() const {
  if (buffer_packets) return *buffer_packets;
  const double packets = buffer_bdp.value_or(1.0) * BdpBytes() / static_cast<double>(packet_bytes);
  // Rounds half to even, as Python does.
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::nearbyint(packets)));
}

QueueKind Scenario::Queue() const {
  return Find(kQueues, "queue", queue);
}

}  // namespace bbrgym
