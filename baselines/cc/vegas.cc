// Vegas.
//
//   diff = cwnd (1 - base_rtt / rtt)      packets in the queue: (expected - actual rate) x base_rtt
//   once a round trip:   diff < alpha: cwnd += 1 packet     diff > beta: cwnd -= 1 packet
//   slow start:          diff > gamma: cwnd = cwnd base_rtt / rtt + 1 packet, congestion avoidance
//   loss:                cwnd / 2 by PRR
//
// Source: Brakmo and Peterson, IEEE JSAC 13(8), 1995; rounds, slow start and losses as in Linux (tcp_vegas.c).

#include "baselines/cc/vegas.h"

#include <algorithm>
#include <sstream>

namespace bbrgym {

void VegasParameters::Describe(ParameterReader& reader) {
  reader.Field("alpha_packets", alpha_packets, 0.0, 1'000'000.0);
  reader.Field("beta_packets", beta_packets, 0.0, 1'000'000.0);
  reader.Field("gamma_packets", gamma_packets, 0.0, 1'000'000.0);
  reader.Field("loss_beta", loss_beta, 0.01, 0.99);
  reader.Field("is_paced", is_paced);
}

VegasController::VegasController(const Connection& connection, const VegasParameters& parameters)
    : LossBasedController(connection, {.has_hystart = false, .is_paced = parameters.is_paced}),
      parameters_(parameters) {
  if (parameters.alpha_packets > parameters.beta_packets) {
    std::ostringstream message;
    message << "alpha_packets must be <= beta_packets, got " << parameters.alpha_packets << " and "
            << parameters.beta_packets;
    throw ParameterError(message.str());
  }
}

void VegasController::OnRestart(Nanoseconds now) {
  LossBasedController::OnRestart(now);
  base_rtt_ = 0;  // the path may be another one after the pause
  StartRound();
}

Metrics VegasController::metrics() const {
  Metrics metrics = LossBasedController::metrics();
  metrics.Set(Metric::round, static_cast<double>(rounds_.count()));
  if (base_rtt_ > 0) metrics.Set(Metric::lowest_rtt_ms, static_cast<double>(base_rtt_) / kMillisecond);
  return metrics;
}

void VegasController::Observe(const AckEvent& ack) {
  if (ack.rtt > 0) {
    base_rtt_ = base_rtt_ == 0 ? ack.rtt : std::min(base_rtt_, ack.rtt);
    round_rtt_ = round_rtt_ == 0 ? ack.rtt : std::min(round_rtt_, ack.rtt);
    ++round_samples_;
  }
  if (recovery() != Recovery::kOpen) {
    // The next round counts packets that were sent after recovery.
    rounds_.Restart(ack.delivered);
    StartRound();
  } else if (ack.sample.is_valid && rounds_.OnDelivered(ack.sample.prior_delivered, ack.delivered)) {
    AdjustCwnd(ack.is_cwnd_limited);
    StartRound();
  }
}

void VegasController::AdjustCwnd(bool is_cwnd_limited) {
  // With fewer samples, each may be of a delayed ACK. The window then grows as in Reno.
  constexpr std::int64_t kMinSamples = 3;
  double diff_packets = 0.0;
  Bytes target = cwnd_;
  if (round_samples_ >= kMinSamples) {
    const double base_share = static_cast<double>(base_rtt_) / static_cast<double>(round_rtt_);
    target = static_cast<Bytes>(static_cast<double>(cwnd_ / packet_bytes()) * base_share) * packet_bytes();
    diff_packets = static_cast<double>(cwnd_) * (1.0 - base_share) / static_cast<double>(packet_bytes());
  }
  if (IsSlowStart()) {
    if (diff_packets <= parameters_.gamma_packets) return;
    cwnd_ = std::max(std::min(cwnd_, target + packet_bytes()), MinCwnd());
    EndSlowStart();
  } else if (diff_packets > parameters_.beta_packets) {
    cwnd_ = std::max(cwnd_ - packet_bytes(), MinCwnd());
    EndSlowStart();
  } else if (diff_packets < parameters_.alpha_packets && is_cwnd_limited) {
    cwnd_ += packet_bytes();
  }
}

Bytes VegasController::ReducedThreshold() {
  return std::max(static_cast<Bytes>(parameters_.loss_beta * static_cast<double>(cwnd_)), MinCwnd());
}

void VegasController::StartRound() {
  round_rtt_ = 0;
  round_samples_ = 0;
}

}  // namespace bbrgym
