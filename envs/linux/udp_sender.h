#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "envs/linux/clock.h"
#include "envs/linux/file_descriptor.h"
#include "envs/model/scenario.h"
#include "envs/transport/flow_row.h"
#include "envs/transport/handshake.h"
#include "envs/transport/sender.h"
#include "envs/transport/token.h"
#include "envs/transport/wire.h"

namespace bbrgym {

/// The sending end of a flow over a connected UDP socket (docs/wire.md): handshake, data, acknowledgements, and the
/// receiver's report. It does no waiting.
class UdpSender {
 public:
  /// Before the start; hello; data; waiting for the report; over; over, because the receiver has another sender.
  enum class Phase : std::uint8_t { kBefore, kConnecting, kOpen, kEnding, kOver, kBusy };

  /// `socket` does not block. The flow begins at `start` of the clock, and is silent from `stop` on.
  UdpSender(FileDescriptor socket, const Flow& flow, std::int64_t packet_bytes, std::uint64_t seed, Nanoseconds start,
            Nanoseconds stop);

  int socket() const { return socket_.get(); }
  /// When to call `Work` if nothing arrives first.
  Nanoseconds NextTime() const;
  /// Reads what has arrived, and sends what is due.
  void Work(const EpisodeClock& clock);

  void SetGains(double cwnd_gain, double pacing_gain);
  /// Ends sending for good, and says nothing.
  void Stop();
  /// Ends sending for good, and asks the receiver for its report.
  void Finish(Nanoseconds now);

  Phase phase() const { return phase_; }
  /// Null until the handshake is done.
  Sender* sender() { return sender_.get(); }
  bool IsOpen() const { return phase_ == Phase::kOpen; }
  /// The receiver's report of what has arrived, if it was asked and has answered.
  const std::optional<wire::Report>& report() const { return report_; }
  /// When the handshake ended, or 0.
  Nanoseconds opened() const { return opened_; }
  /// When the receiver was last heard; the start of the flow before that.
  Nanoseconds last_heard() const { return last_heard_; }
  /// Datagrams that were no part of this flow, or that the kernel did not take.
  std::uint64_t refused() const { return refused_; }
  /// The last error of the socket, an errno, or 0: ECONNREFUSED if the receiver's port is closed.
  int error() const { return error_; }

 private:
  void ReadAll(const EpisodeClock& clock);
  void Take(Nanoseconds now, const wire::Datagram& datagram);
  void TakeReport(const wire::Datagram& datagram);
  void Send(const wire::Datagram& datagram);
  void SendHello(Nanoseconds now);
  void SendEnd(Nanoseconds now);
  wire::Sent sent() const;
  void Connect(Nanoseconds rtt);
  void SendData(const EpisodeClock& clock);

  FileDescriptor socket_;
  Flow flow_;
  std::int64_t packet_bytes_;
  std::uint64_t seed_;
  Nanoseconds start_;
  Nanoseconds stop_;
  Phase phase_ = Phase::kBefore;
  std::uint64_t time_offset_;  // random, so that only who sees a hello can answer it
  wire::Token token_{};
  std::uint16_t connection_ = 0;
  Nanoseconds last_hello_ = 0;
  Nanoseconds hello_timeout_ = kFirstHelloTimeout;
  Nanoseconds end_timeout_ = kFirstEndTimeout;
  Nanoseconds repeat_ = kNever;  // when to send the hello or the end again
  std::optional<Gains> gains_;
  std::unique_ptr<Sender> sender_;
  std::optional<wire::Report> report_;
  Nanoseconds opened_ = 0;
  Nanoseconds last_heard_;
  std::uint64_t refused_ = 0;
  int error_ = 0;
};

}  // namespace bbrgym
