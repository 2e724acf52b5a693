#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace bbrgym {

class PolicyNetwork;

/// Mirrors `bbrgym.Flow`, field for field (a test compares); its docstring has units and meaning.
struct Flow {
  std::string algorithm = "bbr";
  double rtt_ms = 50.0;
  double start_s = 0.0;
  std::optional<double> stop_s;
  std::optional<std::int64_t> size_bytes;
  std::map<std::string, double> parameters;
  double jitter_ms = 0.0;
  /// What Python has a path to; of algorithm `policy`, and of no other.
  std::shared_ptr<const PolicyNetwork> policy;

  template <typename Visitor>
  void VisitFields(Visitor&& visit) {
    visit("algorithm", algorithm);
    visit("rtt_ms", rtt_ms);
    visit("start_s", start_s);
    visit("stop_s", stop_s);
    visit("size_bytes", size_bytes);
    visit("parameters", parameters);
    visit("jitter_ms", jitter_ms);
    visit("policy", policy);
  }

  /// Throws std::invalid_argument unless there is a policy if and only if the algorithm needs one.
  void CheckPolicy() const;
};

/// Mirrors `bbrgym.Scenario`, field for field (a test compares); its docstring has units and meaning.
struct Scenario {
  double rate_mbps = 12.0;
  std::optional<double> buffer_bdp;
  std::optional<std::int64_t> buffer_packets;
  std::string queue = "droptail";
  double codel_target_ms = 5.0;
  double codel_interval_ms = 100.0;
  double duration_s = 30.0;
  std::int64_t packet_bytes = 1000;
  double loss = 0.0;
  std::optional<double> loss_burst_packets;
  std::vector<std::pair<double, double>> rate_schedule;
  std::vector<Flow> flows;

  template <typename Visitor>
  void VisitFields(Visitor&& visit) {
    visit("rate_mbps", rate_mbps);
    visit("buffer_bdp", buffer_bdp);
    visit("buffer_packets", buffer_packets);
    visit("queue", queue);
    visit("codel_target_ms", codel_target_ms);
    visit("codel_interval_ms", codel_interval_ms);
    visit("duration_s", duration_s);
    visit("packet_bytes", packet_bytes);
    visit("loss", loss);
    visit("loss_burst_packets", loss_burst_packets);
    visit("rate_schedule", rate_schedule);
    visit("flows", flows);
  }

  /// The longest base RTT of the flows, in s.
  double LongestRttSeconds() const;
  /// Rate x longest RTT, in bytes.
  double BdpBytes() const;
  /// The rate at the beginning, in Mbit/s: the schedule's, if it begins at once.
  double FirstRateMbps() const;
  /// The largest rate that the link ever has, in Mbit/s.
  double LargestRateMbps() const;
  /// Capacity of the bottleneck's buffer in packets, whichever way it was given; at least 1.
  std::int64_t QueuePackets() const;
  /// Whether the queue is CoDel's and not a droptail one. Throws std::invalid_argument for a queue that does not exist.
  bool IsCodel() const;
};

}  // namespace bbrgym
