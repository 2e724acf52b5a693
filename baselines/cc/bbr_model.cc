#include "baselines/cc/bbr_model.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace bbrgym {
namespace {

// As in HyStart++ (RFC 9406, section 4.3).
constexpr Nanoseconds kMinRttRise = 4 * kMillisecond;
constexpr std::int64_t kLeastBandwidthRounds = 2;

BbrParameters WithoutRoomForBursts(const BbrModelParameters& model) {
  BbrParameters parameters;
  parameters.pacing_margin = 0.0;
  parameters.min_cwnd_packets = model.min_cwnd_packets;
  parameters.extra_acked_gain = 0.0;
  parameters.burst_packets = model.burst_packets;
  return parameters;
}

}  // namespace

BbrModelParameters BbrModelParameters::OfBbr() {
  return {.is_bbr_model = true,
          .bandwidth_window_ms = 0.0,
          .min_cwnd_packets = 4,
          .startup_rtt_rise = 0.0,
          .startup_queue_packets = 0,
          .probe_rtt_cwnd_gain = 0.0,
          .probe_rtt_join = 0.0};
}

void BbrModelParameters::Describe(ParameterReader& reader) {
  reader.Field("is_bbr_model", is_bbr_model);
  if (is_bbr_model) *this = OfBbr();
  reader.Field("bandwidth_window_ms", bandwidth_window_ms, 0.0, 60'000.0);
  reader.Field("min_cwnd_packets", min_cwnd_packets, 1, 1000);
  reader.Field("startup_rtt_rise", startup_rtt_rise, 0.0, 100.0);
  reader.Field("startup_queue_packets", startup_queue_packets, 0, 1'000'000);
  reader.Field("probe_rtt_cwnd_gain", probe_rtt_cwnd_gain, 0.0, 1.0);
  reader.Field("probe_rtt_join", probe_rtt_join, 0.0, 1.0);
  reader.Field("burst_packets", burst_packets, 0, 1000);
}

BbrModelController::BbrModelController(const Connection& connection, const BbrModelParameters& parameters)
    : BbrController(connection, WithoutRoomForBursts(parameters)), model_(parameters) {}

void BbrModelController::OnAck(const AckEvent& ack) {
  if (ack.rtt > 0) lowest_rtt_ = lowest_rtt_ == 0 ? ack.rtt : std::min(lowest_rtt_, ack.rtt);
  BbrController::OnAck(ack);
  highest_bandwidth_ = std::max(highest_bandwidth_, max_bandwidth());
}

void BbrModelController::Observe(const AckEvent& ack) {
  // ACKs that arrive together are judged together: the last one has the smallest RTT.
  if (mode() == Mode::kStartup && ack.now > last_sample_ && IsBehindQueue()) EndStartup();
  if (is_round_start()) {
    ChooseBandwidthWindow();
    round_rtts_ = {};
  }
  if (ack.rtt > 0) {
    round_rtts_.Add(ack.rtt);
    last_sample_ = ack.now;
  }
  MeasureStandingRtt(ack);
  JoinProbeRtt(ack);
}

void BbrModelController::ChooseBandwidthWindow() {
  if (model_.bandwidth_window_ms == 0.0 || min_rtt() == 0) return;
  const auto rounds =
      static_cast<std::int64_t>(model_.bandwidth_window_ms * kMillisecond / static_cast<double>(min_rtt()));
  SetBandwidthWindow(std::clamp(rounds, kLeastBandwidthRounds, parameters().bandwidth_window_rounds));
}

bool BbrModelController::IsBehindQueue() const {
  if (!round_rtts_.is_enough()) return false;
  const Nanoseconds rise = round_rtts_.least - min_rtt();
  if (rise < kMinRttRise) return false;
  const double share = model_.startup_rtt_rise;
  if (share > 0.0 && static_cast<double>(rise) >= share * static_cast<double>(min_rtt())) return true;
  const Bytes queue = model_.startup_queue_packets * connection().packet_bytes;
  return queue > 0 && BytesIn(max_bandwidth(), rise) >= static_cast<double>(queue);
}

void BbrModelController::MeasureStandingRtt(const AckEvent& ack) {
  if (mode() != Mode::kProbeRtt) {
    if (probe_rtt_least_ > 0) standing_rtt_ = std::exchange(probe_rtt_least_, 0);
  } else if (ack.rtt > 0) {
    probe_rtt_least_ = probe_rtt_least_ == 0 ? ack.rtt : std::min(probe_rtt_least_, ack.rtt);
  }
}

void BbrModelController::JoinProbeRtt(const AckEvent& ack) {
  if (mode() != Mode::kProbeBw) {
    min_rtt_at_probe_bw_ = 0;
    return;
  }
  if (min_rtt_at_probe_bw_ == 0) min_rtt_at_probe_bw_ = min_rtt();
  const double joined_below = model_.probe_rtt_join * static_cast<double>(min_rtt_at_probe_bw_);
  if (ack.rtt > 0 && static_cast<double>(ack.rtt) < joined_below) EnterProbeRtt(ChooseProbeRttCwnd());
}

Bytes BbrModelController::ChooseProbeRttCwnd() const {
  // With the lowest RTT: min_rtt may include a standing queue, which a part of that BDP would not drain.
  const double window = model_.probe_rtt_cwnd_gain * BytesIn(max_bandwidth(), lowest_rtt_);
  return std::max(MinCwnd(), static_cast<Bytes>(window));
}

Metrics BbrModelController::metrics() const {
  Metrics metrics = BbrController::metrics();
  metrics.Set(Metric::cycle_index, std::numeric_limits<double>::quiet_NaN());
  const auto set_ms = [&metrics](Metric metric, Nanoseconds rtt) {
    if (rtt > 0) metrics.Set(metric, static_cast<double>(rtt) / kMillisecond);
  };
  set_ms(Metric::lowest_rtt_ms, lowest_rtt_);
  set_ms(Metric::standing_rtt_ms, standing_rtt_);
  if (highest_bandwidth_ > 0) {
    metrics.Set(Metric::highest_bandwidth_mbps, static_cast<double>(highest_bandwidth_) / 1e6);
  }
  return metrics;
}

}  // namespace bbrgym
