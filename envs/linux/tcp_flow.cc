#include "envs/linux/tcp_flow.h"

#include <linux/inet_diag.h>
#include <linux/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <utility>
#include <vector>

namespace bbrgym {

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::string_view kPrefix = "linux-";

/// `tcp_info` as Linux 6.7 has it: older headers end before these members.
struct TcpInfo : tcp_info {
  std::uint32_t rcv_wnd;
  std::uint32_t rehash;
  std::uint16_t total_rto;
  std::uint16_t total_rto_recoveries;
  std::uint32_t total_rto_time;
};

/// Whether the kernel paces a flow: BBR asks for it, and the qdisc fq, which new devices may have, paces all.
bool IsPaced(const std::string& algorithm) {
  std::string qdisc;
  std::ifstream("/proc/sys/net/core/default_qdisc") >> qdisc;
  return algorithm.starts_with("bbr") || qdisc == "fq";
}

/// Waits until `time`, or until `is_ending`.
void WaitUntil(const EpisodeClock& clock, Nanoseconds time, const std::atomic<bool>& is_ending) {
  while (!is_ending) {
    const Nanoseconds left = time - clock.Now();
    if (left <= 0) return;
    const Nanoseconds nap = std::min<Nanoseconds>(left, 10 * kMillisecond);
    const timespec sleep{.tv_sec = 0, .tv_nsec = nap};
    nanosleep(&sleep, nullptr);
  }
}

}  // namespace

TcpFlow::TcpFlow(FileDescriptor sender, FileDescriptor listener, const sockaddr_in& address, const Flow& flow,
                 Nanoseconds start, Nanoseconds stop, const EpisodeClock& clock)
    : algorithm_(flow.algorithm.substr(kPrefix.size())),
      is_paced_(IsPaced(algorithm_)),
      size_(flow.size_bytes),
      start_(start),
      clock_(clock),
      sender_(std::move(sender)),
      listener_(std::move(listener)),
      end_(stop) {
  receiving_ = std::thread([this] { Receive(); });
  sending_ = std::thread([this, address] { Send(address); });
}

TcpFlow::~TcpFlow() {
  is_ending_ = true;
  shutdown(sender_.get(), SHUT_RDWR);
  shutdown(listener_.get(), SHUT_RDWR);
  sending_.join();
  receiving_.join();
}

void TcpFlow::Send(const sockaddr_in& address) {
  WaitUntil(clock_, start_, is_ending_);
  if (is_ending_ || clock_.Now() >= end_) return;
  if (connect(sender_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return;
  is_connected_ = true;
  const std::vector<char> zeros(1 << 16);
  Bytes left = size_.value_or(std::numeric_limits<Bytes>::max());
  while (left > 0 && clock_.Now() < end_) {
    const auto chunk = static_cast<std::size_t>(std::min<Bytes>(left, static_cast<Bytes>(zeros.size())));
    const ssize_t sent = send(sender_.get(), zeros.data(), chunk, MSG_NOSIGNAL);
    if (sent <= 0) return;
    left -= sent;
  }
  if (left == 0) return;
  // At `stop` the flow falls silent: what waits in the socket is not sent.
  const sockaddr nobody{.sa_family = AF_UNSPEC, .sa_data = {}};
  connect(sender_.get(), &nobody, sizeof(nobody));  // a reset, and the descriptor stays
}

void TcpFlow::Receive() {
  const FileDescriptor connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (connection.get() < 0) return;
  std::vector<char> buffer(1 << 18);
  while (!is_ending_) {
    pollfd ready{connection.get(), POLLIN, 0};
    if (poll(&ready, 1, 20) == 0) continue;
    const ssize_t bytes = recv(connection.get(), buffer.data(), buffer.size(), 0);
    if (bytes <= 0) return;
    received_ += bytes;
    if (IsComplete()) end_ = std::min<Nanoseconds>(end_, clock_.Now());
  }
}

std::optional<TcpFlow::Reading> TcpFlow::Read() const {
  TcpInfo info{};
  socklen_t size = sizeof(info);
  if (!is_connected_ || getsockopt(sender_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  const std::uint32_t delivered = info.tcpi_delivered - std::min(info.tcpi_delivered, 1U);  // without the SYN
  constexpr auto kUnlimited = std::numeric_limits<std::uint64_t>::max();
  Reading reading{
      .counts = {.marked_packets = info.tcpi_delivered_ce,
                 .retransmitted_packets = info.tcpi_total_retrans,
                 .timeouts = size >= sizeof(info) ? std::optional<std::uint64_t>(info.total_rto) : std::nullopt,
                 .delivered_bytes = static_cast<Bytes>(delivered) * info.tcpi_snd_mss,
                 .buffer_limited = static_cast<Nanoseconds>(info.tcpi_sndbuf_limited) * 1000},
      .in_flight_packets =
          static_cast<double>(info.tcpi_unacked) - info.tcpi_sacked - info.tcpi_lost + info.tcpi_retrans,
      .cwnd_packets = static_cast<double>(info.tcpi_snd_cwnd),
      .pacing_rate_mbps =
          !is_paced_ || info.tcpi_pacing_rate == kUnlimited ? kNaN : static_cast<double>(info.tcpi_pacing_rate) * 8e-6,
      .rtt_ms = static_cast<double>(info.tcpi_rtt) * 1e-3,
      .metrics = {}};
  if (info.tcpi_snd_ssthresh < 0x7FFFFFFF) reading.metrics.Set(Metric::ssthresh_packets, info.tcpi_snd_ssthresh);
  if (algorithm_ == "bbr") {
    tcp_bbr_info bbr{};
    size = sizeof(bbr);
    if (getsockopt(sender_.get(), IPPROTO_TCP, TCP_CC_INFO, &bbr, &size) == 0 && size >= sizeof(bbr)) {
      const std::uint64_t bandwidth = static_cast<std::uint64_t>(bbr.bbr_bw_hi) << 32U | bbr.bbr_bw_lo;
      reading.metrics.Set(Metric::max_bandwidth_mbps, static_cast<double>(bandwidth) * 8e-6);
      reading.metrics.Set(Metric::min_rtt_ms, bbr.bbr_min_rtt * 1e-3);
      reading.metrics.Set(Metric::pacing_gain, bbr.bbr_pacing_gain / 256.0);
      reading.metrics.Set(Metric::cwnd_gain, bbr.bbr_cwnd_gain / 256.0);
    }
  }
  return reading;
}

}  // namespace bbrgym
