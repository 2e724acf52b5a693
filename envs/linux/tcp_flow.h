#pragma once

#include <netinet/in.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include "envs/linux/clock.h"
#include "envs/linux/emulator.h"
#include "envs/linux/file_descriptor.h"
#include "envs/model/rows.h"
#include "envs/model/scenario.h"

namespace bbrgym {

/// A flow of the kernel's own TCP: `linux-cubic`, `linux-bbr`, … Its rows come from TCP_INFO, TCP_CC_INFO, what the
/// receiving application read, and what the emulator saw.
class TcpFlow {
 public:
  /// Both sockets block; `listener` listens at `address`. The flow begins at `start`, and ends at `stop`.
  TcpFlow(FileDescriptor sender, FileDescriptor listener, const sockaddr_in& address, const Flow& flow,
          Nanoseconds start, Nanoseconds stop, const EpisodeClock& clock);
  ~TcpFlow();

  bool IsComplete() const { return size_ && received_ >= *size_; }
  /// When all bytes had arrived, or `stop`.
  Nanoseconds end() const { return end_; }
  std::int64_t received_bytes() const { return received_; }

  /// Totals of the sender since its beginning; nothing before it is connected.
  struct Counts {
    std::uint64_t marked_packets = 0;  ///< as the receiver's echo lets the kernel count them
    std::uint64_t retransmitted_packets = 0;
    std::optional<std::uint64_t> timeouts;  ///< nothing before Linux 6.7
    Bytes delivered_bytes = 0;
    Nanoseconds buffer_limited = 0;
  };
  /// Its state, of which the kernel tells what it knows.
  struct Reading {
    Counts counts;
    double in_flight_packets;
    double cwnd_packets;
    double pacing_rate_mbps;
    double rtt_ms;
    Metrics metrics;
  };
  std::optional<Reading> Read() const;

 private:
  void Send(const sockaddr_in& address);
  void Receive();

  std::string algorithm_;
  bool is_paced_;
  std::optional<Bytes> size_;
  Nanoseconds start_;
  const EpisodeClock& clock_;
  FileDescriptor sender_;
  FileDescriptor listener_;
  std::atomic<Nanoseconds> end_;
  std::atomic<std::int64_t> received_ = 0;
  std::atomic<bool> is_connected_ = false;
  std::atomic<bool> is_ending_ = false;
  std::thread sending_;
  std::thread receiving_;
};

}  // namespace bbrgym
