#include "envs/linux/tcp_reading.h"

#include <linux/inet_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <fstream>
#include <limits>

namespace bbrgym {

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

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
  static const bool kIsFq = [] {
    std::string qdisc;
    std::ifstream("/proc/sys/net/core/default_qdisc") >> qdisc;
    return qdisc == "fq";
  }();
  return algorithm.starts_with("bbr") || kIsFq;
}

void SetMetrics(const agent_state& state, std::uint32_t packet_bytes, Metrics& metrics) {
  const auto mbps = [packet_bytes](natural rate) { return static_cast<double>(rate) * packet_bytes * 8 / ONE_Q24; };
  const auto set_rtt = [&metrics](Metric metric, unsigned us) {
    if (us > 0) metrics.Set(metric, us * 1e-3);
  };
  metrics.Set(Metric::mode, state.mode);
  metrics.Set(Metric::round, state.round);
  metrics.Set(Metric::is_full_pipe, state.is_full_pipe);
  metrics.Set(Metric::max_bandwidth_mbps, mbps(state.max_bandwidth));
  metrics.Set(Metric::highest_bandwidth_mbps, mbps(state.highest_bandwidth));
  if (state.min_rtt_us > 0) {
    metrics.Set(Metric::bdp_packets, static_cast<double>(state.max_bandwidth) * state.min_rtt_us / ONE_Q24);
  }
  set_rtt(Metric::min_rtt_ms, state.min_rtt_us);
  set_rtt(Metric::lowest_rtt_ms, state.lowest_rtt_us);
  set_rtt(Metric::standing_rtt_ms, state.standing_rtt_us);
  metrics.Set(Metric::cwnd_gain, static_cast<double>(state.cwnd_gain_q24) / ONE_Q24);
  metrics.Set(Metric::pacing_gain, static_cast<double>(state.pacing_gain_q24) / ONE_Q24);
}

void SetMetrics(const tcp_bbr_info& bbr, Metrics& metrics) {
  const std::uint64_t bandwidth = static_cast<std::uint64_t>(bbr.bbr_bw_hi) << 32U | bbr.bbr_bw_lo;
  metrics.Set(Metric::max_bandwidth_mbps, static_cast<double>(bandwidth) * 8e-6);
  metrics.Set(Metric::min_rtt_ms, bbr.bbr_min_rtt * 1e-3);
  metrics.Set(Metric::pacing_gain, bbr.bbr_pacing_gain / 256.0);
  metrics.Set(Metric::cwnd_gain, bbr.bbr_cwnd_gain / 256.0);
}

}  // namespace

std::optional<TcpReading> ReadTcp(int socket, const std::string& algorithm, const KernelAgent* agent, unsigned step) {
  TcpInfo info{};
  socklen_t size = sizeof(info);
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  const std::uint32_t delivered = info.tcpi_delivered - std::min(info.tcpi_delivered, 1U);  // without the SYN
  const bool is_paced = agent != nullptr || IsPaced(algorithm);
  constexpr auto kUnlimited = std::numeric_limits<std::uint64_t>::max();
  TcpReading reading{
      .counts = {.sent_packets = info.tcpi_data_segs_out,
                 .lost_packets = 0,
                 .marked_packets = info.tcpi_delivered_ce,
                 .retransmitted_packets = info.tcpi_total_retrans,
                 .timeouts = size >= sizeof(info) ? std::optional<std::uint64_t>(info.total_rto) : std::nullopt,
                 .delivered_bytes = static_cast<Bytes>(delivered) * info.tcpi_snd_mss,
                 .acknowledged_bytes = static_cast<Bytes>(info.tcpi_bytes_acked) - (info.tcpi_bytes_acked > 0 ? 1 : 0),
                 .buffer_limited = static_cast<Nanoseconds>(info.tcpi_sndbuf_limited) * 1000,
                 .reordered = info.tcpi_reord_seen},
      .packet_bytes = info.tcpi_snd_mss,
      .in_flight_packets =
          static_cast<double>(info.tcpi_unacked) - info.tcpi_sacked - info.tcpi_lost + info.tcpi_retrans,
      .cwnd_packets = static_cast<double>(info.tcpi_snd_cwnd),
      .pacing_rate_mbps =
          !is_paced || info.tcpi_pacing_rate == kUnlimited ? kNaN : static_cast<double>(info.tcpi_pacing_rate) * 8e-6,
      .rtt_ms = static_cast<double>(info.tcpi_rtt) * 1e-3,
      .rtts = std::nullopt,
      .metrics = {}};
  if (info.tcpi_snd_ssthresh < 0x7FFFFFFF) reading.metrics.Set(Metric::ssthresh_packets, info.tcpi_snd_ssthresh);
  if (agent != nullptr) {
    const std::optional<agent_state> state = agent->Read(socket, step);
    if (!state) return std::nullopt;
    reading.counts.lost_packets = state->lost_packets;
    reading.rtts = state->rtts;
    SetMetrics(*state, info.tcpi_snd_mss, reading.metrics);
  } else if (algorithm == "bbr") {
    tcp_bbr_info bbr{};
    size = sizeof(bbr);
    if (getsockopt(socket, IPPROTO_TCP, TCP_CC_INFO, &bbr, &size) == 0 && size >= sizeof(bbr)) {
      SetMetrics(bbr, reading.metrics);
    }
  }
  return reading;
}

void AddTcp(const TcpReading& reading, const TcpReading::Counts& before, double seconds, double packet_bytes,
            FlowRow& row) {
  const TcpReading::Counts& counts = reading.counts;
  const auto delivered = static_cast<double>(counts.delivered_bytes - before.delivered_bytes);
  row.delivered_packets = delivered / packet_bytes;
  row.delivery_rate_mbps = seconds > 0.0 ? delivered * 8e-6 / seconds : 0.0;
  row.marked_packets = static_cast<double>(counts.marked_packets - before.marked_packets);
  row.retransmitted_packets = static_cast<double>(counts.retransmitted_packets - before.retransmitted_packets);
  if (counts.timeouts) row.rto_count = static_cast<double>(*counts.timeouts - before.timeouts.value_or(0));
  row.rtt_last_ms = reading.rtt_ms;
  row.rtt_mean_ms = delivered > 0.0 ? reading.rtt_ms : kNaN;
  if (reading.rtts) {
    const agent_rtts& rtts = *reading.rtts;
    const auto count = static_cast<double>(rtts.count);
    row.lost_packets = static_cast<double>(counts.lost_packets - before.lost_packets);
    row.rtt_last_ms = rtts.last > 0 ? static_cast<double>(rtts.last) * 1e-3 : kNaN;
    row.rtt_mean_ms = rtts.count > 0 ? static_cast<double>(rtts.sum) * 1e-3 / count : kNaN;
    if (rtts.count > 0) row.rtt_min_ms = static_cast<double>(rtts.least) * 1e-3;
    if (rtts.count > 0) row.rtt_max_ms = static_cast<double>(rtts.most) * 1e-3;
    if (rtts.count > 1) row.rtt_jitter_ms = static_cast<double>(rtts.differences) * 1e-3 / (count - 1);
  }
  row.in_flight_packets = reading.in_flight_packets;
  row.cwnd_packets = reading.cwnd_packets;
  row.pacing_rate_mbps = reading.pacing_rate_mbps;
  row.is_buffer_limited = counts.buffer_limited > before.buffer_limited ? 1.0 : 0.0;
  row.metrics = reading.metrics;
}

}  // namespace bbrgym
