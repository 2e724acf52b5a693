#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "baselines/cc/units.h"
#include "envs/model/packet.h"

namespace bbrgym {

class ControllerFile;
class PolicyNetwork;

/// IPv4 and TCP headers, which a data packet has beside its payload: bbrgym.envs.scenario.HEADER_BYTES.
inline constexpr std::int32_t kHeaderBytes = 40;
/// Congestion window of a new connection (RFC 6928).
inline constexpr std::int32_t kInitialCwndPackets = 10;

/// A scenario's time in ns. Later times than 9e18 ns, far beyond the end of any scenario, are this one.
inline Nanoseconds FromSeconds(double seconds) {
  return static_cast<Nanoseconds>(std::min(seconds * 1e9, 9e18));
}

/// A scenario's time in ns.
inline Nanoseconds FromMilliseconds(double ms) {
  return static_cast<Nanoseconds>(ms * 1e6);
}

/// The kinds of queue: the names of `bbrgym.envs.scenario.Queue`.
enum class QueueKind : std::uint8_t { kDroptail, kCodel, kPie, kFqCodel, kDualPi2 };

/// Which links a flow's data crosses: all forward links, one hop of the two, or the reverse link.
enum class FlowPath : std::uint8_t { kForward, kFirstHop, kSecondHop, kReverse };

/// The same fields as `bbrgym.Flow`, whose docstring has units and meaning; a test compares them.
struct Flow {
  std::string algorithm = "bbr";
  double rtt_ms = 50.0;
  double start_s = 0.0;
  std::optional<double> stop_s;
  std::optional<std::int64_t> size_bytes;
  std::map<std::string, double> parameters;
  double jitter_ms = 0.0;
  /// The parsed policy that Python names by its path; only for the algorithm `policy`.
  std::shared_ptr<const PolicyNetwork> policy;
  /// The compiled and loaded C file that Python names by its path; only for the algorithm `file`.
  std::shared_ptr<const ControllerFile> file;
  std::optional<std::string> ecn;
  std::vector<std::pair<double, double>> rtt_schedule;
  double ack_loss = 0.0;
  double ack_aggregation_ms = 0.0;
  std::optional<double> app_rate_mbps;
  std::optional<double> on_s;
  std::optional<double> off_s;
  std::string on_off = "fixed";
  std::string path = "forward";
  std::vector<std::string> server;
  std::vector<std::string> client;
  std::string data_from = "client";
  std::string transport = "ours";

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
    visit("file", file);
    visit("ecn", ecn);
    visit("rtt_schedule", rtt_schedule);
    visit("ack_loss", ack_loss);
    visit("ack_aggregation_ms", ack_aggregation_ms);
    visit("app_rate_mbps", app_rate_mbps);
    visit("on_s", on_s);
    visit("off_s", off_s);
    visit("on_off", on_off);
    visit("path", path);
    visit("server", server);
    visit("client", client);
    visit("data_from", data_from);
    visit("transport", transport);
  }

  /// The ECN field of the flow's packets as they are sent. Throws std::invalid_argument for an unknown kind of ECN.
  Ecn Ect() const;
  /// Throws std::invalid_argument for an unknown path.
  FlowPath Path() const;
  /// Whether its ends are two commands, `server` and `client`.
  bool IsCommand() const { return algorithm == "command"; }
  /// Whether the kernel's TCP sends its packets, and an agent or a policy steers it.
  bool IsOverKernel() const { return transport == "kernel"; }

  /// Delay from the sender to its receiver, in ms: half of the shortest base RTT that the flow ever has. It never
  /// changes; the rest of the RTT lies between the receiver and the sender.
  double ForwardMs() const;
};

/// The same fields as `bbrgym.Scenario`, whose docstring has units and meaning; a test compares them.
struct Scenario {
  double rate_mbps = 12.0;
  std::optional<double> buffer_bdp;
  std::optional<std::int64_t> buffer_packets;
  std::string queue = "droptail";
  double codel_target_ms = 5.0;
  double codel_interval_ms = 100.0;
  double pie_target_ms = 15.0;
  double dualpi2_target_ms = 15.0;
  double dualpi2_step_ms = 1.0;
  double dualpi2_coupling = 2.0;
  std::optional<double> ce_threshold_ms;
  double duration_s = 30.0;
  std::int64_t packet_bytes = 1000;
  double loss = 0.0;
  /// Ends by packets only: a lone flow that has stopped stays in its burst (loss_model.h).
  std::optional<double> loss_burst_packets;
  std::optional<double> loss_burst_ms;
  std::vector<std::pair<double, double>> rate_schedule;
  double reordering = 0.0;
  double reordering_ms = 10.0;
  std::optional<double> policer_mbps;
  std::int64_t policer_burst_bytes = 100'000;
  std::optional<double> second_rate_mbps;
  std::int64_t second_buffer_packets = 100;
  std::optional<double> reverse_rate_mbps;
  std::int64_t reverse_buffer_packets = 100;
  std::vector<Flow> flows;

  template <typename Visitor>
  void VisitFields(Visitor&& visit) {
    visit("rate_mbps", rate_mbps);
    visit("buffer_bdp", buffer_bdp);
    visit("buffer_packets", buffer_packets);
    visit("queue", queue);
    visit("codel_target_ms", codel_target_ms);
    visit("codel_interval_ms", codel_interval_ms);
    visit("pie_target_ms", pie_target_ms);
    visit("dualpi2_target_ms", dualpi2_target_ms);
    visit("dualpi2_step_ms", dualpi2_step_ms);
    visit("dualpi2_coupling", dualpi2_coupling);
    visit("ce_threshold_ms", ce_threshold_ms);
    visit("duration_s", duration_s);
    visit("packet_bytes", packet_bytes);
    visit("loss", loss);
    visit("loss_burst_packets", loss_burst_packets);
    visit("loss_burst_ms", loss_burst_ms);
    visit("rate_schedule", rate_schedule);
    visit("reordering", reordering);
    visit("reordering_ms", reordering_ms);
    visit("policer_mbps", policer_mbps);
    visit("policer_burst_bytes", policer_burst_bytes);
    visit("second_rate_mbps", second_rate_mbps);
    visit("second_buffer_packets", second_buffer_packets);
    visit("reverse_rate_mbps", reverse_rate_mbps);
    visit("reverse_buffer_packets", reverse_buffer_packets);
    visit("flows", flows);
  }

  /// Throws std::invalid_argument if there is no flow, an unknown queue, or a flow with an unknown kind of ECN or of
  /// periods, an unneeded or missing policy or file, or a path over a link that does not exist.
  void Check() const;
  /// Throws std::out_of_range if there is no such flow, std::invalid_argument if it cannot be steered.
  void CheckSteerable(std::int64_t flow) const;

  /// Whether there are links beside the bottleneck.
  bool HasFurtherLinks() const { return second_rate_mbps || reverse_rate_mbps; }
  /// A scenario whose bottleneck is the second link, and one with the reverse link: a rate and a droptail buffer,
  /// nothing random, no flows. Nothing if there is no such link.
  std::optional<Scenario> SecondLink() const;
  std::optional<Scenario> ReverseLink() const;

  /// The longest base RTT of the flows, in s.
  double LongestRttSeconds() const;
  /// Delay from the link to every receiver, in ms: half of the shortest of the flows' `ForwardMs`. The rest of those of
  /// a flow lies between its sender and the queue.
  double LinkDelayMs() const;
  /// Rate x longest RTT, in bytes.
  double BdpBytes() const;
  /// The rate at time 0, in Mbit/s: that of the schedule if it begins at 0.
  double FirstRateMbps() const;
  /// The largest rate that a link ever has, in Mbit/s.
  double LargestRateMbps() const;
  /// The link's largest packet: Ethernet's MTU, or a full packet if Ethernet would fragment it.
  Bytes MtuBytes() const { return std::max<Bytes>(1500, packet_bytes + kHeaderBytes); }
  /// Capacity of the bottleneck's buffer in packets, at least 1.
  std::int64_t QueuePackets() const;
  /// Throws std::invalid_argument for an unknown queue.
  QueueKind Queue() const;
};

}  // namespace bbrgym
