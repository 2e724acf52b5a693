// DA-BBR.
//
//   BDP' = gamma x bandwidth x min_rtt,   gamma = RTT / (RTT + min_rtt) in [1/2, 1)        in ProbeBW
//
// Source: the first author's kernel code (ku-asteam/da-bbr, tcp_DA-BBR.c, 2019); the article's abstract. Ours: use
// the last RTT for an ACK without one; the window of ProbeRTT is never below BBR's.

#include "baselines/cc/da_bbr.h"

#include <algorithm>

namespace bbrgym {

void DaBbrParameters::Describe(ParameterReader& reader) {
  BbrParameters::Describe(reader);
  reader.Field("has_loss_response", has_loss_response);
  reader.Field("has_probe_rtt_third", has_probe_rtt_third);
  reader.Field("min_rtt_growth", min_rtt_growth, 1.0, 100.0);
}

DaBbrController::DaBbrController(const Connection& connection, const DaBbrParameters& parameters)
    : BbrController(connection, parameters), delay_aware_(parameters) {}

void DaBbrController::Observe(const AckEvent& ack) {
  if (ack.rtt <= 0) return;
  rtt_ = ack.rtt;
  if (previous_min_rtt_ == 0) previous_min_rtt_ = ack.rtt;
  // The filter is about to take a new value: keep the old one to compare it with.
  if (mode() == Mode::kProbeBw && IsMinRttExpired(ack.now)) previous_min_rtt_ = min_rtt();
}

Gains DaBbrController::ChooseGains() const {
  Gains gains = BbrController::ChooseGains();
  if (mode() == Mode::kProbeBw && drained_phase_ == phase_start()) gains.pacing = parameters().probe_down_gain;
  return gains;
}

double DaBbrController::BdpBytes(double gain, BitsPerSecond bandwidth) const {
  const double bdp = BbrController::BdpBytes(gain, bandwidth);
  const auto min_rtt_ns = static_cast<double>(min_rtt());
  const bool has_path_changed = delay_aware_.min_rtt_growth * static_cast<double>(previous_min_rtt_) < min_rtt_ns;
  if (mode() != Mode::kProbeBw || has_path_changed || rtt_ == 0) return bdp;
  const auto rtt_ns = static_cast<double>(rtt_);
  return bdp * rtt_ns / (rtt_ns + min_rtt_ns);
}

bool DaBbrController::RecoverOrRestoreCwnd(const AckEvent& ack) {
  if (!delay_aware_.has_loss_response) return BbrController::RecoverOrRestoreCwnd(ack);
  if (is_entering_recovery()) {
    is_packet_conservation_ = true;
    RestartRound(ack.delivered);
    cwnd_ = std::max(ack.in_flight, connection().packet_bytes);
    drained_phase_ = phase_start();  // until the next phase of the cycle
  } else if (is_leaving_recovery()) {
    is_packet_conservation_ = false;
  }
  return is_packet_conservation_;
}

Bytes DaBbrController::ChooseProbeRttCwnd() const {
  if (!delay_aware_.has_probe_rtt_third) return BbrController::ChooseProbeRttCwnd();
  return std::max(cwnd_ / 3, MinCwnd());
}

}  // namespace bbrgym
