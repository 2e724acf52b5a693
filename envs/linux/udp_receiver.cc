#include "envs/linux/udp_receiver.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "envs/linux/siphash.h"

namespace bbrgym {

namespace {

constexpr std::size_t kBatch = 32;
/// How far beyond what is expected next a packet may be. It bounds the memory that a hostile sender can make us take.
constexpr std::uint64_t kMostAhead = 1U << 20U;

}  // namespace

UdpReceiver::UdpReceiver(FileDescriptor socket, std::optional<std::uint64_t> key)
    : socket_(std::move(socket)), key_(key) {}

void UdpReceiver::Work(const EpisodeClock& clock) {
  // Of data packets, only the header is read.
  std::array<std::array<std::uint8_t, wire::kMaxControlBytes>, kBatch> buffers;
  static std::array<std::uint8_t, 1 << 16> rest;  // nobody reads it
  std::array<std::array<iovec, 2>, kBatch> pieces;
  std::array<sockaddr_in, kBatch> addresses;
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
        Take(clock.Now(), *datagram, addresses[index]);
      } else {
        ++refused_;
      }
    }
  }
  if (receiver_.AckDue() <= clock.Now()) SendAck();
}

void UdpReceiver::Take(Nanoseconds now, const wire::Datagram& datagram, const sockaddr_in& from) {
  if (datagram.kind == wire::Kind::kHello) {
    TakeHello(datagram, from);
    return;
  }
  const bool is_sender =
      has_sender_ && from.sin_addr.s_addr == sender_.sin_addr.s_addr && from.sin_port == sender_.sin_port;
  if (!is_sender || datagram.kind != wire::Kind::kData) {
    ++refused_;
    return;
  }
  const std::uint64_t number = wire::Expand(datagram.number, expected_number_);
  const std::uint64_t segment = wire::Expand(datagram.segment, receiver_.next_segment());
  if (number > expected_number_ + kMostAhead || segment > receiver_.next_segment() + kMostAhead) {
    ++refused_;
    return;
  }
  expected_number_ = std::max(expected_number_, number + 1);
  const DataPacket packet{
      .number = number, .segment = segment, .bytes = datagram.bytes, .is_retransmission = datagram.is_retransmission};
  if (receiver_.OnPacket(now, packet)) SendAck();
}

void UdpReceiver::TakeHello(const wire::Datagram& hello, const sockaddr_in& from) {
  const bool is_other =
      has_sender_ && (from.sin_addr.s_addr != sender_.sin_addr.s_addr || from.sin_port != sender_.sin_port);
  if (is_other) {
    ++refused_;
    return;
  }
  if (key_ && hello.token != TokenFor(from)) {
    Answer({.kind = wire::Kind::kRetry, .time = hello.time, .token = TokenFor(from)}, from);
    return;
  }
  has_sender_ = true;
  sender_ = from;
  Answer({.kind = wire::Kind::kWelcome, .time = hello.time}, from);
}

void UdpReceiver::SendAck() {
  wire::Datagram datagram{.kind = wire::Kind::kAck};
  receiver_.WriteAck(datagram.ack);
  Answer(datagram, sender_);
}

void UdpReceiver::Answer(const wire::Datagram& datagram, const sockaddr_in& to) {
  std::array<std::uint8_t, wire::kMaxControlBytes> buffer;
  const std::size_t bytes = wire::Write(datagram, buffer);
  if (sendto(socket(), buffer.data(), bytes, 0, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) < 0) ++refused_;
}

wire::Token UdpReceiver::TokenFor(const sockaddr_in& address) const {
  const std::uint64_t who = static_cast<std::uint64_t>(address.sin_addr.s_addr) << 16U | address.sin_port;
  wire::Token token;
  for (std::size_t half = 0; half < 2; ++half) {
    const std::uint64_t hash = SipHash(*key_, half, who);
    std::memcpy(token.data() + 8 * half, &hash, sizeof(hash));
  }
  return token;
}

}  // namespace bbrgym
