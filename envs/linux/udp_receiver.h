#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <optional>

#include "envs/linux/clock.h"
#include "envs/linux/file_descriptor.h"
#include "envs/transport/receiver.h"
#include "envs/transport/wire.h"

namespace bbrgym {

/// The receiving end of a flow over a UDP socket. It serves one sender: the first that says hello (with the token, if
/// one is asked for), and sends nothing to anybody else but a retry. It does no waiting.
class UdpReceiver {
 public:
  /// `socket` is bound and does not block. With `key`, a sender must return a token, which proves its address, before
  /// anything of it counts.
  explicit UdpReceiver(FileDescriptor socket, std::optional<std::uint64_t> key = std::nullopt);

  int socket() const { return socket_.get(); }
  /// When to call `Work` if nothing arrives first: a delayed acknowledgement is due.
  Nanoseconds NextTime() const { return receiver_.AckDue(); }
  /// Reads what has arrived, and sends acknowledgements.
  void Work(const EpisodeClock& clock);

  const Receiver& receiver() const { return receiver_; }
  bool HasSender() const { return has_sender_; }
  /// Datagrams that were no part of the flow.
  std::uint64_t refused() const { return refused_; }

 private:
  void Take(Nanoseconds now, const wire::Datagram& datagram, const sockaddr_in& from);
  void TakeHello(const wire::Datagram& hello, const sockaddr_in& from);
  void SendAck();
  void Answer(const wire::Datagram& datagram, const sockaddr_in& to);
  wire::Token TokenFor(const sockaddr_in& address) const;

  FileDescriptor socket_;
  std::optional<std::uint64_t> key_;
  bool has_sender_ = false;
  sockaddr_in sender_{};
  std::uint64_t expected_number_ = 0;
  Receiver receiver_;
  std::uint64_t refused_ = 0;
};

}  // namespace bbrgym
