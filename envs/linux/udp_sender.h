#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "envs/linux/clock.h"
#include "envs/linux/file_descriptor.h"
#include "envs/model/scenario.h"
#include "envs/transport/flow_row.h"
#include "envs/transport/handshake.h"
#include "envs/transport/sender.h"
#include "envs/transport/wire.h"

namespace bbrgym {

/// The sending end of a flow over a connected UDP socket: handshake, data, acknowledgements. It does no waiting.
class UdpSender {
 public:
  /// `socket` does not block. The flow begins at `start` of the clock, and is silent from `stop` on.
  UdpSender(FileDescriptor socket, const Flow& flow, std::int64_t packet_bytes, std::uint64_t seed, Nanoseconds start,
            Nanoseconds stop);

  int socket() const { return socket_.get(); }
  /// When to call `Work` if nothing arrives first.
  Nanoseconds NextTime() const;
  /// Reads what has arrived, and sends what is due.
  void Work(const EpisodeClock& clock);

  void Steer(double cwnd_gain, double pacing_gain);
  /// Ends sending for good.
  void Stop();
  /// Null until the handshake is done.
  Sender* sender() { return sender_.get(); }
  bool IsOpen() const { return phase_ == Phase::kOpen; }
  /// Datagrams that were no part of this flow, or that the kernel did not take.
  std::uint64_t refused() const { return refused_; }

 private:
  enum class Phase : std::uint8_t { kBefore, kConnecting, kOpen, kEnded };

  void ReadAll(const EpisodeClock& clock);
  void Take(Nanoseconds now, const wire::Datagram& datagram);
  void SendHello(Nanoseconds now);
  void Connect(Nanoseconds rtt);
  void SendData(const EpisodeClock& clock);

  FileDescriptor socket_;
  Flow flow_;
  std::int64_t packet_bytes_;
  std::uint64_t seed_;
  Nanoseconds start_;
  Nanoseconds stop_;
  Phase phase_ = Phase::kBefore;
  wire::Token token_{};
  std::uint16_t connection_ = 0;
  Nanoseconds hello_ = kNever;
  Nanoseconds hello_timeout_ = kFirstHelloTimeout;
  std::optional<Gains> gains_;
  std::unique_ptr<Sender> sender_;
  std::uint64_t refused_ = 0;
};

}  // namespace bbrgym
