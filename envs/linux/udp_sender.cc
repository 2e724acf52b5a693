#include "envs/linux/udp_sender.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "baselines/cc/random.h"
#include "envs/transport/connection.h"

namespace bbrgym {

namespace {

constexpr std::size_t kBatch = 32;

}  // namespace

UdpSender::UdpSender(FileDescriptor socket, const Flow& flow, std::int64_t packet_bytes, std::uint64_t seed,
                     Nanoseconds start, Nanoseconds stop)
    : socket_(std::move(socket)),
      flow_(flow),
      packet_bytes_(packet_bytes),
      seed_(seed),
      start_(start),
      stop_(stop),
      time_offset_(Random(seed).Next()),
      last_heard_(start) {}

Nanoseconds UdpSender::NextTime() const {
  switch (phase_) {
    case Phase::kBefore:
      return std::min(start_, stop_);
    case Phase::kConnecting:
    case Phase::kEnding:
      return std::min(repeat_, stop_);
    case Phase::kOpen:
      return std::min(sender_->NextTimer(), stop_);
    case Phase::kOver:
    case Phase::kBusy:
      break;
  }
  return kNever;
}

void UdpSender::Work(const EpisodeClock& clock) {
  ReadAll(clock);
  const Nanoseconds now = clock.Now();
  if (stop_ <= now) Stop();
  if (phase_ == Phase::kBefore && start_ <= now) {
    phase_ = Phase::kConnecting;
    repeat_ = now;
  }
  if (phase_ == Phase::kConnecting && repeat_ <= now) SendHello(now);
  if (phase_ == Phase::kEnding && repeat_ <= now) SendEnd(now);
  if (phase_ != Phase::kOpen) return;
  sender_->OnTimer(now);
  SendData(clock);
}

void UdpSender::SetGains(double cwnd_gain, double pacing_gain) {
  gains_ = {.cwnd = cwnd_gain, .pacing = pacing_gain};
  if (sender_) sender_->controller().Steer(cwnd_gain, pacing_gain);
}

void UdpSender::Stop() {
  if (phase_ != Phase::kBusy) phase_ = Phase::kOver;
  if (sender_) sender_->Stop();
}

void UdpSender::Finish(Nanoseconds now) {
  if (phase_ != Phase::kOpen) {
    Stop();
    return;
  }
  sender_->Stop();
  phase_ = Phase::kEnding;
  repeat_ = now;
}

void UdpSender::ReadAll(const EpisodeClock& clock) {
  std::array<std::array<std::uint8_t, wire::kMaxControlBytes + 1>, kBatch> buffers;
  std::array<iovec, kBatch> pieces;
  std::array<mmsghdr, kBatch> messages;
  for (int count = kBatch; count == static_cast<int>(kBatch);) {
    for (std::size_t i = 0; i < kBatch; ++i) {
      pieces[i] = {.iov_base = buffers[i].data(), .iov_len = buffers[i].size()};
      messages[i] = {};
      messages[i].msg_hdr.msg_iov = &pieces[i];
      messages[i].msg_hdr.msg_iovlen = 1;
    }
    count = recvmmsg(socket(), messages.data(), kBatch, 0, nullptr);
    if (count < 0 && errno != EAGAIN) error_ = errno;
    for (int i = 0; i < count; ++i) {
      const auto index = static_cast<std::size_t>(i);
      const auto datagram = wire::Read({buffers[index].data(), messages[index].msg_len});
      if (datagram) {
        Take(clock.Now(), *datagram);
      } else {
        ++refused_;
      }
    }
  }
}

void UdpSender::Take(Nanoseconds now, const wire::Datagram& datagram) {
  using wire::Kind;
  const Kind kind = datagram.kind;
  const std::uint64_t refused_before = refused_;
  if (phase_ == Phase::kConnecting && (kind == Kind::kRetry || kind == Kind::kWelcome || kind == Kind::kBusy)) {
    const auto asked = static_cast<Nanoseconds>(datagram.time - time_offset_);
    const bool is_for_last = asked == last_hello_;
    if (kind == Kind::kRetry && is_for_last) {  // an older hello's would open a second connection
      token_ = datagram.token;
      SendHello(now);
    } else if (kind == Kind::kWelcome && start_ <= asked && asked <= now &&
               datagram.connection == ConnectionOf(token_)) {
      connection_ = datagram.connection;
      opened_ = now;
      Connect(now - asked);
    } else if (kind == Kind::kBusy && is_for_last) {
      phase_ = Phase::kBusy;
    } else {
      ++refused_;
    }
  } else if (kind == Kind::kAck && sender_ && datagram.connection == connection_ &&
             datagram.ack.ranges[0].high < sender_->counts().sent_packets) {
    if (phase_ == Phase::kOpen) sender_->OnAck(now, datagram.ack);
  } else if (kind == Kind::kReport && phase_ == Phase::kEnding && datagram.connection == connection_) {
    TakeReport(datagram);
  } else {
    ++refused_;
  }
  if (refused_ == refused_before) last_heard_ = now;
}

void UdpSender::TakeReport(const wire::Datagram& datagram) {
  report_ = datagram.report;
  phase_ = Phase::kOver;
  Send({.kind = wire::Kind::kEnd, .connection = connection_, .token = token_, .is_last = true, .sent = sent()});
}

void UdpSender::Send(const wire::Datagram& datagram) {
  std::array<std::uint8_t, wire::kMaxControlBytes> buffer;
  if (send(socket(), buffer.data(), wire::Write(datagram, buffer), 0) >= 0) return;
  error_ = errno;
  ++refused_;
}

void UdpSender::SendHello(Nanoseconds now) {
  last_hello_ = now;
  Send({.kind = wire::Kind::kHello, .time = static_cast<std::uint64_t>(now) + time_offset_, .token = token_});
  repeat_ = now + hello_timeout_;
  hello_timeout_ = NextHelloTimeout(hello_timeout_);
}

void UdpSender::SendEnd(Nanoseconds now) {
  Send({.kind = wire::Kind::kEnd, .connection = connection_, .token = token_, .sent = sent()});
  repeat_ = now + end_timeout_;
  end_timeout_ = std::min(2 * end_timeout_, kLongestEndTimeout);
}

wire::Sent UdpSender::sent() const {
  return {.packets = sender_->counts().sent_packets, .bytes = static_cast<std::uint64_t>(sender_->counts().sent_bytes)};
}

void UdpSender::Connect(Nanoseconds rtt) {
  const int ect = static_cast<int>(flow_.Ect());
  // The socket's family takes one of the two.
  setsockopt(socket(), IPPROTO_IP, IP_TOS, &ect, sizeof(ect));
  setsockopt(socket(), IPPROTO_IPV6, IPV6_TCLASS, &ect, sizeof(ect));
  sender_ = MakeSender(flow_, MakeConnection(flow_, packet_bytes_, rtt, seed_), gains_, opened_);
  phase_ = Phase::kOpen;
}

void UdpSender::SendData(const EpisodeClock& clock) {
  static const std::vector<std::uint8_t> zeros(1 << 16);
  std::array<std::array<std::uint8_t, wire::kDataHeaderBytes>, kBatch> headers;
  std::array<std::array<iovec, 2>, kBatch> pieces;
  std::array<mmsghdr, kBatch> messages;
  for (std::size_t count = kBatch; count == kBatch;) {
    count = 0;
    for (DataPacket packet; count < kBatch && sender_->NextPacket(clock.Now(), packet); ++count) {
      std::array<std::uint8_t, wire::kMaxControlBytes> buffer;
      wire::Write({.kind = wire::Kind::kData,
                   .connection = connection_,
                   .number = static_cast<std::uint32_t>(packet.number),
                   .segment = static_cast<std::uint32_t>(packet.segment),
                   .bytes = packet.bytes,
                   .is_retransmission = packet.is_retransmission},
                  buffer);
      std::copy_n(buffer.begin(), wire::kDataHeaderBytes, headers[count].begin());
      pieces[count] = {
          {{.iov_base = headers[count].data(), .iov_len = wire::kDataHeaderBytes},
           {.iov_base = const_cast<std::uint8_t*>(zeros.data()), .iov_len = static_cast<std::size_t>(packet.bytes)}}};
      messages[count] = {};
      messages[count].msg_hdr.msg_iov = pieces[count].data();
      messages[count].msg_hdr.msg_iovlen = pieces[count].size();
    }
    // What the kernel does not take is lost, as it is on any other full queue.
    const int sent = count > 0 ? sendmmsg(socket(), messages.data(), static_cast<unsigned>(count), 0) : 0;
    if (sent < 0) error_ = errno;
    if (sent < static_cast<int>(count)) refused_ += count - static_cast<std::size_t>(std::max(sent, 0));
  }
}

}  // namespace bbrgym
