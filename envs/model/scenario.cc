#include "envs/model/scenario.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace bbrgym {

void Flow::CheckPolicy() const {
  if ((algorithm == "policy") == (policy != nullptr)) return;
  throw std::invalid_argument("a flow of algorithm '" + algorithm + "' " +
                              (policy ? "cannot have a policy: only 'policy' runs one" : "needs a policy"));
}

double Scenario::LongestRttSeconds() const {
  double longest_ms = 0.0;
  for (const Flow& flow : flows) longest_ms = std::max(longest_ms, flow.rtt_ms);
  return longest_ms / 1e3;
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
  return largest;
}

std::int64_t Scenario::QueuePackets() const {
  if (buffer_packets) return *buffer_packets;
  const double packets = buffer_bdp.value_or(1.0) * BdpBytes() / static_cast<double>(packet_bytes);
  // Half to even, as Python's round.
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::nearbyint(packets)));
}

bool Scenario::IsCodel() const {
  if (queue != "droptail" && queue != "codel") {
    throw std::invalid_argument("no queue '" + queue + "'; known: droptail, codel");
  }
  return queue == "codel";
}

}  // namespace bbrgym
