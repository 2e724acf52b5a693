// BBR-ACD.
//
//   congested = (RTT > min_rtt and equal to the one before, within 1 ms, twice in a row) or RTT > 2 min_rtt
//   entering recovery while congested: for a round, on every ACK, cwnd = max(min(cwnd / 2, BDP), 4 packets)
//   entering recovery otherwise: nothing but cwnd -= lost
//
// Source: the first author's kernel code (imtiaztee/BBR-ACD-Linux-Kernel-Code, tcp_bbr.c, December 2019) for what the
// article (Electronics 2020, 9, 136, section 4) leaves open. Ours: ignore ACKs without a valid RTT.

#include "baselines/cc/bbr_acd.h"

#include <algorithm>
#include <cstdlib>

namespace bbrgym {

void BbrAcdParameters::Describe(ParameterReader& reader) {
  BbrParameters::Describe(reader);
  reader.Field("rtt_tolerance_ms", rtt_tolerance_ms, 0.0, 10'000.0);
  reader.Field("equal_rtts", equal_rtts, 1, 1000);
  reader.Field("rtt_ratio", rtt_ratio, 1.0, 1000.0);
  reader.Field("is_halved_once", is_halved_once);
}

BbrAcdController::BbrAcdController(const Connection& connection, const BbrAcdParameters& parameters)
    : BbrController(connection, parameters), detection_(parameters) {}

void BbrAcdController::Observe(const AckEvent& ack) {
  if (ack.rtt <= 0) return;
  const auto tolerance = static_cast<Nanoseconds>(detection_.rtt_tolerance_ms * kMillisecond);
  const bool is_equal = rtt_ > 0 && std::abs(ack.rtt - rtt_) <= tolerance;
  equal_in_a_row_ = ack.rtt > min_rtt() && is_equal ? equal_in_a_row_ + 1 : 0;
  rtt_ = ack.rtt;
}

bool BbrAcdController::IsCongested() const {
  return equal_in_a_row_ >= detection_.equal_rtts ||
         static_cast<double>(rtt_) > detection_.rtt_ratio * static_cast<double>(min_rtt());
}

bool BbrAcdController::RecoverOrRestoreCwnd(const AckEvent& ack) {
  if (is_entering_recovery() && IsCongested()) {
    is_packet_conservation_ = true;
    is_halved_ = false;
    RestartRound(ack.delivered);
  } else if (is_leaving_recovery()) {
    cwnd_ = std::max(cwnd_, cwnd_before_recovery());
    is_packet_conservation_ = false;
  }
  if (!is_packet_conservation_) return false;
  if (!detection_.is_halved_once || !is_halved_) {
    cwnd_ = std::max(std::min(cwnd_ / 2, InflightTarget(1.0, max_bandwidth())), MinCwnd());
    is_halved_ = true;
  }
  return true;
}

}  // namespace bbrgym
