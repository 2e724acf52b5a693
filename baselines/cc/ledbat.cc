// LEDBAT.
//
//   queueing_delay = min(last RTTs) - base_rtt          base_rtt = windowed_min(RTT, 10 minutes)
//   cwnd += GAIN (TARGET - queueing_delay) / TARGET x acked / cwnd            packets
//   cwnd <= flight size + ALLOWED_INCREASE              loss: cwnd / 2
//
// Source: RFC 6817, section 2.4.2. Ours: RTTs in place of one-way delays, as in LEDBAT++
// (draft-irtf-iccrg-ledbat-plus-plus-01); recovery by PRR.

#include "baselines/cc/ledbat.h"

#include <algorithm>

namespace bbrgym {

void LedbatParameters::Describe(ParameterReader& reader) {
  reader.Field("target_ms", target_ms, 0.1, 10'000.0);
  reader.Field("gain", gain, 0.001, 100.0);
  reader.Field("allowed_increase_packets", allowed_increase_packets, 1, 1'000'000);
  reader.Field("base_history_min", base_history_min, 0.01, 1440.0);
  reader.Field("beta", beta, 0.01, 0.99);
  reader.Field("has_slow_start", has_slow_start);
}

LedbatController::LedbatController(const Connection& connection, const LedbatParameters& parameters)
    : LossBasedController(connection, {.has_hystart = parameters.has_slow_start, .is_paced = false}),
      parameters_(parameters),
      base_rtt_(static_cast<Nanoseconds>(parameters.base_history_min * 60.0 * kSecond)) {
  if (!parameters.has_slow_start) EndSlowStart();
}

Metrics LedbatController::metrics() const {
  Metrics metrics = LossBasedController::metrics();
  if (rtt_count_ > 0) metrics.Set(Metric::min_rtt_ms, static_cast<double>(base_rtt_.Least()) / kMillisecond);
  return metrics;
}

void LedbatController::Observe(const AckEvent& ack) {
  if (ack.rtt > 0) {
    base_rtt_.Update(ack.now, ack.rtt);
    rtts_[static_cast<std::size_t>(rtt_count_++) % kCurrentDelays] = ack.rtt;
  }
  if (rtt_count_ == 0 || recovery() != Recovery::kOpen) return;
  const double target = parameters_.target_ms * kMillisecond;
  const double off_target = (target - static_cast<double>(QueueingDelay())) / target;
  if (IsSlowStart() && off_target > 0.0) return;
  const auto packet = static_cast<double>(packet_bytes());
  const double acked_windows = static_cast<double>(ack.bytes_acked) / static_cast<double>(cwnd_);
  const double change = cwnd_fraction_ + parameters_.gain * off_target * acked_windows * packet;
  const auto whole = static_cast<Bytes>(change);
  cwnd_fraction_ = change - static_cast<double>(whole);
  const Bytes most = ack.prior_in_flight + parameters_.allowed_increase_packets * packet_bytes();
  cwnd_ = std::max(std::min(cwnd_ + whole, most), MinCwnd());
  EndSlowStart();
}

Bytes LedbatController::ReducedThreshold() {
  cwnd_fraction_ = 0.0;
  return std::max(static_cast<Bytes>(parameters_.beta * static_cast<double>(cwnd_)), MinCwnd());
}

Nanoseconds LedbatController::QueueingDelay() const {
  const auto count = std::min(static_cast<std::size_t>(rtt_count_), kCurrentDelays);
  return *std::min_element(rtts_.begin(), rtts_.begin() + static_cast<std::ptrdiff_t>(count)) - base_rtt_.Least();
}

}  // namespace bbrgym
