#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <variant>

#include "envs/linux/clock.h"
#include "envs/linux/file_descriptor.h"
#include "envs/transport/receiver.h"
#include "envs/transport/token.h"
#include "envs/transport/wire.h"

namespace bbrgym {

/// The receiving end of flows over a UDP socket, one at a time (docs/wire.md). It serves the first sender that says
/// hello, with a token if one is asked for, and refuses others until `Release`. A sender that has not proved its
/// address gets a retry, which is as long as its hello, and nothing else. It does no waiting.
class UdpReceiver {
 public:
  /// Waiting for a sender; receiving; the sender has ended and was sent the report; the flow is over.
  enum class Phase : std::uint8_t { kWaiting, kReceiving, kReported, kOver };

  /// `socket` is bound and does not block. With `key`, a sender must return a token, which proves its address, before
  /// anything of it counts. A sender that is silent for `silence_limit` is gone.
  explicit UdpReceiver(FileDescriptor socket, std::optional<SipKey> key = std::nullopt,
                       Nanoseconds silence_limit = kNever);

  int socket() const { return socket_.get(); }
  /// When to call `Work` if nothing arrives first.
  Nanoseconds NextTime() const;
  /// Reads what has arrived, and sends acknowledgements.
  void Work(const EpisodeClock& clock);
  /// Forgets the sender, so that another one is served.
  void Release();

  Phase phase() const { return phase_; }
  const Receiver& receiver() const { return receiver_; }
  /// What has arrived of the flow.
  wire::Report report() const;
  /// What the sender says that it has sent, once it has ended.
  const std::optional<wire::Sent>& sent() const { return sent_; }
  /// The sender's address, unless it is waiting for one.
  const sockaddr_storage& sender() const { return sender_.peer; }
  /// Datagrams that were no part of a flow.
  std::uint64_t refused() const { return refused_; }

 private:
  /// The peer that a datagram came from, and the address of this host that it was sent to. Answers must have that one
  /// as their source: the peer's socket is connected, and takes nothing from another.
  struct Way {
    sockaddr_storage peer{};
    std::variant<std::monostate, in_pktinfo, in6_pktinfo> local;
  };

  static Way WayOf(msghdr& message);
  void Take(Nanoseconds now, const wire::Datagram& datagram, Ecn ecn, const Way& way);
  void TakeHello(Nanoseconds now, const wire::Datagram& hello, const Way& way);
  void TakeData(Nanoseconds now, const wire::Datagram& data, Ecn ecn);
  void TakeEnd(Nanoseconds now, const wire::Datagram& end);
  void SendAck();
  void Answer(const wire::Datagram& datagram, const Way& way);

  FileDescriptor socket_;
  std::optional<SipKey> key_;
  Nanoseconds silence_limit_;
  Phase phase_ = Phase::kWaiting;
  Nanoseconds patience_end_ = kNever;  // when a silent sender is gone
  std::uint64_t refused_ = 0;

  // The flow's; the token is kept after it, so that a late copy of its hello begins no other one.
  wire::Token token_{};
  Way sender_;
  std::uint16_t connection_ = 0;
  std::uint64_t expected_number_ = 0;
  std::uint64_t arrived_packets_ = 0;
  std::uint64_t reordered_packets_ = 0;
  Receiver receiver_;
  std::optional<wire::Sent> sent_;
};

}  // namespace bbrgym
