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

/// A flow's parameters, which differ from the defaults of its controller.
using Parameters = std::map<std::string, double>;
/// Pairs of a time in s and the value from then on.
using Schedule = std::vector<std::pair<double, double>>;

/// envs/scenario.def has the fields, with units and meaning. What Python names by a path is loaded here: `policy` is
/// parsed, `file` compiled.
struct Flow {
#define FLOW_FIELD(type, name, default_value, bounds, meaning) type name = default_value;
#include "envs/scenario.def"

  template <typename Visitor>
  void VisitFields(Visitor&& visit) {
#define FLOW_FIELD(type, name, default_value, bounds, meaning) visit(#name, name);
#include "envs/scenario.def"
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

/// envs/scenario.def has the fields, with units and meaning.
struct Scenario {
#define SCENARIO_FIELD(type, name, default_value, bounds, meaning) type name = default_value;
#include "envs/scenario.def"

  template <typename Visitor>
  void VisitFields(Visitor&& visit) {
#define SCENARIO_FIELD(type, name, default_value, bounds, meaning) visit(#name, name);
#include "envs/scenario.def"
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
