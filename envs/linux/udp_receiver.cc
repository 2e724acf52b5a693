#include "envs/linux/udp_receiver.h"

#include <netinet/in.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>
#include <variant>

namespace bbrgym {

namespace {

constexpr std::size_t kBatch = 32;
/// How far beyond what is expected next a packet may be. It bounds the memory that a hostile sender can make us take.
constexpr std::uint64_t kMostAhead = 1U << 20U;
/// How long a lost report can be asked for again.
constexpr Nanoseconds kLinger = 3 * kSecond;

PeerAddress PeerOf(const sockaddr_storage& address) {
  PeerAddress peer{};
  if (address.ss_family == AF_INET6) {
    const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(address);
    std::memcpy(peer.data(), &ipv6.sin6_addr, 16);
    std::memcpy(peer.data() + 16, &ipv6.sin6_port, 2);
  } else {
    const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(address);
    peer[10] = peer[11] = 0xFF;
    std::memcpy(peer.data() + 12, &ipv4.sin_addr, 4);
    std::memcpy(peer.data() + 16, &ipv4.sin_port, 2);
  }
  return peer;
}

/// The ECN field of the IP header that a message came with.
Ecn EcnOf(msghdr& message) {
  for (cmsghdr* control = CMSG_FIRSTHDR(&message); control != nullptr; control = CMSG_NXTHDR(&message, control)) {
    // The kernel hands over a byte for IPv4, an int for IPv6.
    if (control->cmsg_level == IPPROTO_IP && control->cmsg_type == IP_TOS) {
      return static_cast<Ecn>(*CMSG_DATA(control) & 3U);
    }
    if (control->cmsg_level == IPPROTO_IPV6 && control->cmsg_type == IPV6_TCLASS) {
      int traffic_class = 0;
      std::memcpy(&traffic_class, CMSG_DATA(control), sizeof(traffic_class));
      return static_cast<Ecn>(traffic_class & 3);
    }
  }
  return Ecn::kNotEct;
}

}  // namespace

UdpReceiver::UdpReceiver(FileDescriptor socket, std::optional<SipKey> key, Nanoseconds silence_limit)
    : socket_(std::move(socket)), key_(key), silence_limit_(silence_limit) {
  const int yes = 1;
  // The socket's family takes those of IPv4, or those of IPv6.
  setsockopt(socket_.get(), IPPROTO_IP, IP_RECVTOS, &yes, sizeof(yes));
  setsockopt(socket_.get(), IPPROTO_IP, IP_PKTINFO, &yes, sizeof(yes));
  setsockopt(socket_.get(), IPPROTO_IPV6, IPV6_RECVTCLASS, &yes, sizeof(yes));
  setsockopt(socket_.get(), IPPROTO_IPV6, IPV6_RECVPKTINFO, &yes, sizeof(yes));
}

Nanoseconds UdpReceiver::NextTime() const {
  return phase_ == Phase::kReceiving ? std::min(receiver_.AckDue(), patience_end_) : patience_end_;
}

void UdpReceiver::Work(const EpisodeClock& clock) {
  // Only the header of data packets is read.
  std::array<std::array<std::uint8_t, wire::kMaxControlBytes>, kBatch> buffers;
  static std::array<std::uint8_t, 1 << 16> rest;  // nobody reads it
  std::array<std::array<iovec, 2>, kBatch> pieces;
  std::array<sockaddr_storage, kBatch> addresses;
  struct alignas(cmsghdr) Control {
    std::array<std::uint8_t,
               2 * CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(in_pktinfo)) + CMSG_SPACE(sizeof(in6_pktinfo))>
        bytes;
  };
  std::array<Control, kBatch> controls;
  std::array<mmsghdr, kBatch> messages;
  for (int count = kBatch; count == static_cast<int>(kBatch);) {
    for (std::size_t i = 0; i < kBatch; ++i) {
      pieces[i] = {{{.iov_base = buffers[i].data(), .iov_len = buffers[i].size()},
                    {.iov_base = rest.data(), .iov_len = rest.size()}}};
      messages[i] = {};
      messages[i].msg_hdr.msg_name = &addresses[i];
      messages[i].msg_hdr.msg_namelen = sizeof(addresses[i]);
      messages[i].msg_hdr.msg_iov = pieces[i].data();
      messages[i].msg_hdr.msg_iovlen = pieces[i].size();
      messages[i].msg_hdr.msg_control = controls[i].bytes.data();
      messages[i].msg_hdr.msg_controllen = controls[i].bytes.size();
    }
    count = recvmmsg(socket(), messages.data(), kBatch, 0, nullptr);
    for (int i = 0; i < count; ++i) {
      const auto index = static_cast<std::size_t>(i);
      const std::size_t bytes = messages[index].msg_len;
      auto datagram = wire::Read({buffers[index].data(), std::min(bytes, buffers[index].size())});
      if (datagram && datagram->kind == wire::Kind::kData) {
        datagram->bytes = static_cast<std::int32_t>(bytes - wire::kDataHeaderBytes);
      } else if (bytes > buffers[index].size()) {
        datagram.reset();
      }
      if (datagram) {
        Take(clock.Now(), *datagram, EcnOf(messages[index].msg_hdr), WayOf(messages[index].msg_hdr));
      } else {
        ++refused_;
      }
    }
  }
  const Nanoseconds now = clock.Now();
  if (phase_ == Phase::kReceiving && receiver_.AckDue() <= now) SendAck();
  if (patience_end_ <= now) {
    phase_ = Phase::kOver;
    patience_end_ = kNever;
  }
}

void UdpReceiver::Release() {
  phase_ = Phase::kWaiting;
  patience_end_ = kNever;
  expected_number_ = arrived_packets_ = reordered_packets_ = 0;
  receiver_ = Receiver();
  sent_.reset();
}

wire::Report UdpReceiver::report() const {
  const Receiver::Counts& counts = receiver_.counts();
  return {.received_bytes = static_cast<std::uint64_t>(counts.received),
          .arrived_bytes = static_cast<std::uint64_t>(counts.arrived),
          .arrived_packets = arrived_packets_,
          .reordered_packets = reordered_packets_};
}

/// Without the interface: which one leads to the peer is the routes' choice.
UdpReceiver::Way UdpReceiver::WayOf(msghdr& message) {
  Way way;
  std::memcpy(&way.peer, message.msg_name, message.msg_namelen);
  for (cmsghdr* control = CMSG_FIRSTHDR(&message); control != nullptr; control = CMSG_NXTHDR(&message, control)) {
    if (control->cmsg_level == IPPROTO_IP && control->cmsg_type == IP_PKTINFO) {
      in_pktinfo local{};
      std::memcpy(&local, CMSG_DATA(control), sizeof(local));
      local.ipi_ifindex = 0;
      way.local = local;
    } else if (control->cmsg_level == IPPROTO_IPV6 && control->cmsg_type == IPV6_PKTINFO) {
      in6_pktinfo local{};
      std::memcpy(&local, CMSG_DATA(control), sizeof(local));
      local.ipi6_ifindex = 0;
      way.local = local;
    }
  }
  return way;
}

void UdpReceiver::Take(Nanoseconds now, const wire::Datagram& datagram, Ecn ecn, const Way& way) {
  const bool is_senders =
      phase_ != Phase::kWaiting && datagram.connection == connection_ && PeerOf(way.peer) == PeerOf(sender_.peer);
  if (datagram.kind == wire::Kind::kHello) {
    TakeHello(now, datagram, way);
  } else if (datagram.kind == wire::Kind::kData && is_senders && phase_ == Phase::kReceiving) {
    TakeData(now, datagram, ecn);
  } else if (datagram.kind == wire::Kind::kEnd && is_senders && datagram.token == token_) {
    TakeEnd(now, datagram);
  } else {
    ++refused_;
  }
}

void UdpReceiver::TakeHello(Nanoseconds now, const wire::Datagram& hello, const Way& way) {
  const PeerAddress peer = PeerOf(way.peer);
  const bool is_used = hello.token == token_ && peer == PeerOf(sender_.peer);
  if (phase_ == Phase::kReceiving && is_used) {  // the welcome was lost
    Answer({.kind = wire::Kind::kWelcome, .connection = connection_, .time = hello.time}, way);
  } else if (key_ && !IsTokenValid(hello.token, *key_, peer, now)) {
    Answer({.kind = wire::Kind::kRetry, .time = hello.time, .token = MakeToken(*key_, peer, now)}, way);
  } else if (key_ && is_used) {
    ++refused_;
  } else if (phase_ != Phase::kWaiting) {
    ++refused_;
    Answer({.kind = wire::Kind::kBusy, .time = hello.time}, way);
  } else {
    phase_ = Phase::kReceiving;
    token_ = hello.token;
    sender_ = way;
    connection_ = ConnectionOf(token_);
    if (silence_limit_ != kNever) patience_end_ = now + silence_limit_;
    Answer({.kind = wire::Kind::kWelcome, .connection = connection_, .time = hello.time}, way);
  }
}

void UdpReceiver::TakeData(Nanoseconds now, const wire::Datagram& data, Ecn ecn) {
  const std::uint64_t number = wire::Expand(data.number, expected_number_);
  const std::uint64_t segment = wire::Expand(data.segment, receiver_.next_segment());
  if (number > expected_number_ + kMostAhead || segment > receiver_.next_segment() + kMostAhead) {
    ++refused_;
    return;
  }
  ++arrived_packets_;
  if (number < expected_number_) ++reordered_packets_;
  expected_number_ = std::max(expected_number_, number + 1);
  if (silence_limit_ != kNever) patience_end_ = now + silence_limit_;
  const DataPacket packet{.number = number,
                          .segment = segment,
                          .bytes = data.bytes,
                          .is_retransmission = data.is_retransmission,
                          .ecn = ecn};
  if (receiver_.OnPacket(now, packet)) SendAck();
}

void UdpReceiver::TakeEnd(Nanoseconds now, const wire::Datagram& end) {
  if (phase_ == Phase::kReceiving) {
    phase_ = Phase::kReported;
    sent_ = end.sent;
  }
  if (phase_ != Phase::kReported) return;
  if (end.is_last) {
    phase_ = Phase::kOver;
    patience_end_ = kNever;
    return;
  }
  patience_end_ = now + kLinger;
  Answer({.kind = wire::Kind::kReport, .connection = connection_, .report = report()}, sender_);
}

void UdpReceiver::SendAck() {
  wire::Datagram datagram{.kind = wire::Kind::kAck, .connection = connection_};
  receiver_.WriteAck(datagram.ack);
  Answer(datagram, sender_);
}

void UdpReceiver::Answer(const wire::Datagram& datagram, const Way& way) {
  std::array<std::uint8_t, wire::kMaxControlBytes> buffer;
  iovec piece{.iov_base = buffer.data(), .iov_len = wire::Write(datagram, buffer)};
  sockaddr_storage to = way.peer;
  msghdr message{};
  message.msg_name = &to;
  message.msg_namelen = to.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<std::uint8_t, CMSG_SPACE(sizeof(in6_pktinfo))> control{};
  const auto add_local = [&](const auto& local) {
    using Local = std::decay_t<decltype(local)>;
    if constexpr (!std::is_same_v<Local, std::monostate>) {
      constexpr bool kIsIpv4 = std::is_same_v<Local, in_pktinfo>;
      message.msg_control = control.data();
      message.msg_controllen = CMSG_SPACE(sizeof(local));
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = kIsIpv4 ? IPPROTO_IP : IPPROTO_IPV6;
      header->cmsg_type = kIsIpv4 ? IP_PKTINFO : IPV6_PKTINFO;
      header->cmsg_len = CMSG_LEN(sizeof(local));
      std::memcpy(CMSG_DATA(header), &local, sizeof(local));
    }
  };
  std::visit(add_local, way.local);
  if (sendmsg(socket(), &message, 0) < 0) ++refused_;
}

}  // namespace bbrgym
