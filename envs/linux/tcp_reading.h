#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "envs/linux/kernel_agent.h"
#include "envs/model/rows.h"

namespace bbrgym {

/// What the kernel tells of a TCP socket.
struct TcpReading {
  /// Totals of the sender since its beginning.
  struct Counts {
    std::uint64_t sent_packets = 0;
    std::uint64_t lost_packets = 0;    ///< with `agent` only
    std::uint64_t marked_packets = 0;  ///< as the receiver's echo lets the kernel count them
    std::uint64_t retransmitted_packets = 0;
    std::optional<std::uint64_t> timeouts;  ///< nothing before Linux 6.7
    Bytes delivered_bytes = 0;
    Bytes acknowledged_bytes = 0;  ///< without gaps
    Nanoseconds buffer_limited = 0;
    std::int64_t reordered = 0;  ///< events of reordering
  };
  Counts counts;
  std::int64_t packet_bytes;
  double in_flight_packets;
  double cwnd_packets;
  double pacing_rate_mbps;
  double rtt_ms;  ///< smoothed
  std::optional<agent_rtts> rtts;
  Metrics metrics;
};

/// Returns nothing before the connection. `agent`: what controls the socket, unless `algorithm` does, in its step
/// `step`.
std::optional<TcpReading> ReadTcp(int socket, const std::string& algorithm, const KernelAgent* agent, unsigned step);

/// Fills a row with what a step has changed. What the kernel does not tell stays NaN.
void AddTcp(const TcpReading& reading, const TcpReading::Counts& before, double seconds, double packet_bytes,
            FlowRow& row);

}  // namespace bbrgym
