// The controller of an agent: pacing_rate = pacing_gain x bandwidth, cwnd = cwnd_gain x BDP + correction, with the
// estimates of BBR (bbr.cc), gains that come from outside once per decision interval, and backlog_correction.h.
//   BDP = bandwidth x base_rtt
//   base_rtt = windowed_min(RTT, 20 s) + what RTTs have beyond their minimum without a queue: jitter (path_doubt.h), or
//     a delay that is ignored
//   bandwidth = windowed_max(delivery_rate, 300 ms, of 2 to 10 rounds)

#include "baselines/cc/agent.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

namespace bbrgym {
namespace {

// As in HyStart++ (RFC 9406, section 4.3).
constexpr Nanoseconds kMinRttRise = 4 * kMillisecond;
constexpr Nanoseconds kSmallJitter = 2 * kMillisecond;
// The window of max_bandwidth where the link's rate changes all the time: a shorter one forgets what the link can
// carry, with a longer one the queue is longer, and flows with different RTTs share less evenly.
constexpr std::int64_t kChangingRounds = 4;
// Where jitter is slow: BBR's cycle, which probes for less, and makes room in all other rounds.
constexpr std::array kSlowJitterPacing = {1.05, 0.9, 0.96, 0.96, 0.96, 0.96, 0.96, 0.96};
// On a free link. Slower, the flow would not fill its window while the rate grows.
constexpr double kFreePacing = 1.5;

BbrParameters ModelParameters(const AgentParameters& agent) {
  BbrParameters parameters;
  parameters.pacing_margin = agent.pacing_margin;
  parameters.min_cwnd_packets = agent.min_cwnd_packets;
  parameters.extra_acked_gain = 0.0;  // the window depends on the gain alone
  return parameters;
}

/// Returns the share of its bandwidth below which a flow recalls rivals: half at preference 1, none at the default,
/// with which it gives way to them.
double RecallsBelow(const AgentParameters& agent) {
  constexpr double kYielding = AgentParameters{}.preference;
  return agent.recalls_rivals ? 0.5 * std::max(0.0, agent.preference - kYielding) / (1.0 - kYielding) : 0.0;
}

}  // namespace

void AgentParameters::Describe(ParameterReader& reader) {
  reader.Field("preference", preference, 0.0, 1.0);
  reader.Field("cwnd_gain", cwnd_gain, 0.01, 100.0);
  reader.Field("pacing_gain", pacing_gain, 0.01, 100.0);
  reader.Field("min_cwnd_gain", min_cwnd_gain, 0.01, 100.0);
  reader.Field("max_cwnd_gain", max_cwnd_gain, 0.01, 100.0);
  reader.Field("min_pacing_gain", min_pacing_gain, 0.01, 100.0);
  reader.Field("max_pacing_gain", max_pacing_gain, 0.01, 100.0);
  reader.Field("is_always_steered", is_always_steered);
  reader.Field("pacing_margin", pacing_margin, 0.0, 0.5);
  reader.Field("bandwidth_window_ms", bandwidth_window_ms, 1.0, 60'000.0);
  reader.Field("min_cwnd_packets", min_cwnd_packets, 1, 1000);
  reader.Field("startup_rtt_rise", startup_rtt_rise, 0.0, 100.0);
  reader.Field("startup_queue_packets", startup_queue_packets, 0, 1'000'000);
  reader.Field("probe_rtt_cwnd_gain", probe_rtt_cwnd_gain, 0.0, 1.0);
  reader.Field("light_probe_rtt_cwnd_gain", light_probe_rtt_cwnd_gain, 0.0, 1.0);
  reader.Field("probe_rtt_join", probe_rtt_join, 0.0, 1.0);
  reader.Field("base_rtt_window_s", base_rtt_window_s, 0.1, 3600.0);
  reader.Field("doubt_below", doubt_below, 0.0, 1.0);
  reader.Field("recalls_rivals", recalls_rivals);
  reader.Field("notices_ack_compression", notices_ack_compression);
  reader.Field("ignored_delay_ms", ignored_delay_ms, 0.0, 1000.0);
  reader.Field("correction_rounds", correction_rounds, 0.0, 1000.0);
  reader.Field("surplus_packets", surplus_packets, 0, 1'000'000);
  reader.Field("makes_up_for_losses", makes_up_for_losses);
  reader.Field("counts_unused_window", counts_unused_window);
  reader.Field("notices_slower_link", notices_slower_link);
  reader.Field("fills_free_link", fills_free_link);
  reader.Field("paces_lone_flow", paces_lone_flow);
}

AgentController::AgentController(const Connection& connection, const AgentParameters& parameters)
    : BbrController(connection, ModelParameters(parameters)),
      agent_(parameters),
      base_rtt_(static_cast<Nanoseconds>(parameters.base_rtt_window_s * kSecond)),
      doubt_(parameters.doubt_below, connection.packet_bytes),
      shrinking_path_(static_cast<Nanoseconds>(BbrController::parameters().min_rtt_window_s * kSecond)),
      correction_(connection.packet_bytes, parameters.correction_rounds, parameters.surplus_packets,
                  parameters.makes_up_for_losses, parameters.counts_unused_window),
      lone_pacing_(connection.packet_bytes),
      standing_rtt_(RecallsBelow(parameters)),
      rate_changes_(connection.packet_bytes),
      free_link_(connection.packet_bytes) {
  if (parameters.min_cwnd_gain > parameters.max_cwnd_gain || parameters.min_pacing_gain > parameters.max_pacing_gain) {
    throw ParameterError("min_cwnd_gain must be <= max_cwnd_gain, and min_pacing_gain <= max_pacing_gain");
  }
  Steer(parameters.cwnd_gain, parameters.pacing_gain);
}

void AgentController::OnAck(const AckEvent& ack) {
  if (ack.rtt > 0 && (lowest_rtt_ == 0 || ack.rtt < lowest_rtt_)) lowest_rtt_ = ack.rtt;
  if (ack.rtt > 0) base_rtt_.Update(ack.now, ack.rtt);
  BbrController::OnAck(ack);
  highest_bandwidth_ = std::max(highest_bandwidth_, max_bandwidth());
}

void AgentController::Observe(const AckEvent& ack) {
  const std::optional<RttRise> rise = rises_.OnAck(ack);
  if (rise && rise->unexplained > kMinRttRise / 2) rtts_since_jump_ = {};
  if (ack.rtt > 0) rtts_since_jump_.Add(ack.rtt);
  compression_.OnAck(ack);
  // ACKs that arrive together are judged together: the last one has the smallest RTT.
  if (mode() == Mode::kStartup && ack.now > last_sample_ && IsBehindQueue()) EndStartup();
  lone_pacing_.OnAck(ack);
  rate_changes_.OnAck(ack, mode() == Mode::kProbeBw);
  NoticeSlowerLink(ack);
  NoticeFreeLink(ack);
  if (is_round_start()) {
    SetBandwidthWindow(ChooseBandwidthWindow());
    const double bdp = BdpBytes(1.0, max_bandwidth());
    const AgentRound last_round = {.rtts = round_rtts_,
                                   .base_rtt = BaseRtt(),
                                   .bdp = bdp,
                                   .target = (CwndGain() - 1.0) * bdp,
                                   .cwnd = cwnd_,
                                   .is_compressed = HeldUp() > 0};
    PaceLoneFlow(ack, last_round);
    correction_.OnRoundStart(ack, last_round, mode() == Mode::kProbeBw && !lone_pacing_.is_pacing());
    if (mode() == Mode::kProbeBw) {
      // With others, there would be two such queues and more. A flow that is paced has none.
      const double own = 1.5 * (CwndGain() - 1.0) * static_cast<double>(base_rtt_.Least());
      shrinking_path_.OnRound(
          ack.now, round_rtts_.count > 0 && !lone_pacing_.is_pacing() &&
                       static_cast<double>(round_rtts_.mean() - base_rtt_.Least() - 2 * Ignored(lowest_rtt_)) <= own);
      has_short_queue_ = round_rtts_.count > 0 && round_rtts_.least <= lowest_rtt_ + 2 * Ignored(lowest_rtt_);
    }
    round_rtts_ = {};
  }
  if (ack.rtt > 0) {
    round_rtts_.Add(ack.rtt);
    last_sample_ = ack.now;
  }
  MeasureStandingRtt(ack);
  LookForShorterPath(ack);
  DoubtPath(ack, rise);
  JoinProbeRtt(ack);
}

std::int64_t AgentController::ChooseBandwidthWindow() const {
  // A slow jitter has BBR's cycle again.
  const std::int64_t most = parameters().bandwidth_window_rounds;
  if (doubt_.is_jitter_slow()) return most;
  if (rate_changes_.are_frequent()) return std::min(kChangingRounds, most);
  const double rounds =
      agent_.bandwidth_window_ms * kMillisecond / static_cast<double>(std::max<Nanoseconds>(base_rtt_.Least(), 1));
  return static_cast<std::int64_t>(std::clamp(rounds, 2.0, static_cast<double>(most)));
}

void AgentController::PaceLoneFlow(const AckEvent& ack, const AgentRound& round) {
  if (!agent_.paces_lone_flow) return;
  if (!lone_pacing_.is_alone()) lone_cwnd_gain_ = steered_.cwnd;
  lone_pacing_.OnRoundStart(ack, round, mode() == Mode::kProbeBw && !doubt_.is_adding() && Jitter() == 0);
}

void AgentController::JoinProbeRtt(const AckEvent& ack) {
  if (mode() == Mode::kProbeRtt && has_short_queue_ && ack.rtt > 0 && 100 * ack.rtt < 98 * min_rtt_before_) {
    has_short_queue_ = false;
    EnterProbeRtt(ChooseProbeRttCwnd());
  }
  if (mode() != Mode::kProbeBw) {
    min_rtt_at_probe_bw_ = 0;
    return;
  }
  min_rtt_before_ = min_rtt();
  if (min_rtt_at_probe_bw_ == 0) min_rtt_at_probe_bw_ = min_rtt();
  const double joined_below = agent_.probe_rtt_join * static_cast<double>(min_rtt_at_probe_bw_);
  if (ack.rtt > 0 && static_cast<double>(ack.rtt) < joined_below) EnterProbeRtt(ChooseProbeRttCwnd());
}

void AgentController::MeasureStandingRtt(const AckEvent& ack) {
  if (mode() == Mode::kProbeRtt) return standing_rtt_.OnProbeRtt(ack.rtt);
  if (const Nanoseconds rtt = standing_rtt_.OnProbeRttEnd(); rtt > 0) {
    const bool is_shorter = Jitter() == 0 && rtt + base_rtt_before_ / 64 + kMillisecond < base_rtt_before_;
    shrinking_path_.OnProbeRttEnd(ack.now, is_shorter);
  }
  if (mode() == Mode::kProbeBw) standing_rtt_.OnProbeBw(max_bandwidth());
}

void AgentController::LookForShorterPath(const AckEvent& ack) {
  if (mode() != Mode::kProbeBw) return;
  base_rtt_before_ = base_rtt_.Least();
  if (shrinking_path_.is_due(ack.now) && !doubt_.is_adding()) EnterProbeRtt(ChooseProbeRttCwnd());
}

void AgentController::DoubtPath(const AckEvent& ack, const std::optional<RttRise>& rise) {
  if (!doubt_.is_adding()) undoubted_cwnd_ = std::max(cwnd_, ack.in_flight);
  // In the second half of ProbeRTT the queue has drained. An RTT that is longer than this half was enough before, and
  // few packets leave in such a half.
  const auto duration = static_cast<Nanoseconds>(parameters().probe_rtt_ms * kMillisecond);
  const Nanoseconds drained_since = probe_rtt_end() - (ack.rtt > duration / 2 ? duration : duration / 2);
  const bool wants_probe_rtt =
      doubt_.OnAck(ack, {.base_rtt = base_rtt_.Least(),
                         .is_probe_bw = mode() == Mode::kProbeBw,
                         .is_draining = 2 * ack.in_flight > 3 * cwnd_,
                         .drained_since = probe_rtt_end() > 0 && ack.now >= drained_since ? drained_since : 0,
                         .rise = rise,
                         .bandwidth = max_bandwidth(),
                         .explains_jumps = CompressionJitter() > 0 || rate_changes_.are_frequent()});
  if (wants_probe_rtt) EnterProbeRtt(ChooseProbeRttCwnd());
  if (doubt_.has_found_jitter()) RestartStartup();
  if (doubt_.longer_rtt() > 0) base_rtt_.Replace(ack.now, doubt_.longer_rtt());
  const BitsPerSecond bandwidth = std::max(doubt_.held_bandwidth(), doubt_.found_bandwidth());
  if (bandwidth > 0) ReplaceBandwidth(bandwidth);
}

bool AgentController::IsBehindQueue() const {
  if (!round_rtts_.is_enough()) return false;
  // A queue grows with each packet. A path over satellites jumps, and then stays so for a moment.
  if (rtts_since_jump_.most - rtts_since_jump_.least <= kMinRttRise) return false;
  const Nanoseconds base_rtt = base_rtt_.Least();
  const Nanoseconds rise = round_rtts_.least - base_rtt - Jitter();
  if (rise < kMinRttRise) return false;
  const double share = agent_.startup_rtt_rise;
  if (share > 0.0 && static_cast<double>(rise) >= share * static_cast<double>(base_rtt)) return true;
  const Bytes queue = agent_.startup_queue_packets * connection().packet_bytes;
  return queue > 0 && BytesIn(max_bandwidth(), rise) >= queue;
}

bool AgentController::Steer(double cwnd_gain, double pacing_gain) {
  // NaN would spread into every estimate: keep the last gain instead.
  if (!std::isnan(cwnd_gain)) steered_.cwnd = std::clamp(cwnd_gain, agent_.min_cwnd_gain, agent_.max_cwnd_gain);
  if (!std::isnan(pacing_gain)) {
    steered_.pacing = std::clamp(pacing_gain, agent_.min_pacing_gain, agent_.max_pacing_gain);
  }
  return true;
}

Gains AgentController::ChooseGains() const {
  if (mode() != Mode::kProbeBw && !agent_.is_always_steered) return BbrController::ChooseGains();
  Gains gains = {.cwnd = CwndGain(), .pacing = steered_.pacing};
  if (free_link_.is_free()) gains.pacing = std::max(gains.pacing, kFreePacing);
  if (doubt_.is_jitter_slow()) {
    gains.pacing = std::min(gains.pacing, kSlowJitterPacing[round() % kSlowJitterPacing.size()]);
  }
  if (lone_pacing_.is_pacing()) {
    gains.pacing = std::min(gains.pacing, lone_pacing_.rate() / static_cast<double>(max_bandwidth()));
  }
  if (doubt_.is_adding()) {
    if (doubt_.is_rate_exact()) gains.pacing = 1.0;
    gains.pacing *= std::max(1.0, static_cast<double>(doubt_.rate()) / static_cast<double>(max_bandwidth()));
  }
  return gains;
}

Bytes AgentController::ChooseProbeRttCwnd() const {
  // Use the lowest RTT. base_rtt may include a standing queue; a part of that BDP would not drain the queue, and no
  // flow would ever see the path empty again.
  const double gain = has_short_queue_ ? agent_.light_probe_rtt_cwnd_gain : agent_.probe_rtt_cwnd_gain;
  return std::max(BbrController::ChooseProbeRttCwnd(),
                  static_cast<Bytes>(gain * BytesIn(max_bandwidth(), lowest_rtt_)));
}

void AgentController::NoticeSlowerLink(const AckEvent& ack) {
  // The queue of a test of a doubt is not there to stay. A flow that prefers its share keeps it behind a rival's queue.
  const bool has_own_queue = doubt_.held_bandwidth() == 0 && agent_.preference <= AgentParameters{}.preference;
  const bool comes_and_goes = rate_changes_.are_frequent() || rate_changes_.has_grown_lately(ack.now);
  slower_link_.OnAck(ack, BaseRtt(), max_bandwidth(), agent_.notices_slower_link && has_own_queue && !comes_and_goes);
}

void AgentController::NoticeFreeLink(const AckEvent& ack) {
  // The agent wants a queue. A flow that is paced has none, and a test adds what it needs itself.
  const bool wants_queue = CwndGain() > 1.0 && steered_.pacing > 1.0 && !lone_pacing_.is_pacing();
  const bool counts = wants_queue && mode() == Mode::kProbeBw && !doubt_.is_adding();
  // A quarter of it is none.
  const double most_rtt = (1.0 + 0.25 * (CwndGain() - 1.0)) * static_cast<double>(BaseRtt());
  free_link_.OnAck(ack, most_rtt, agent_.fills_free_link && counts);
}

void AgentController::MoveCwnd(const AckEvent& ack, Bytes target) {
  // Where the agent chooses the gain, the window is exactly that. BBR's room for bursts, 36 packets at 100 Mbit/s,
  // would be more than what an agent wants in the queue.
  if (doubt_.is_adding()) {
    cwnd_ = undoubted_cwnd_ + doubt_.added();
    return;
  }
  const bool is_steered = mode() == Mode::kProbeBw || agent_.is_always_steered;
  // The BDP has room for the mean jitter; the packets that jitter holds up longest need more. But a jitter of one or
  // two milliseconds may be the queue of others, in which a flow with so much room would starve them. Compressed ACKs
  // show that it is not, and that packets are held up for up to twice the mean; beside a queue, half of this is enough.
  // Where jitter is slow, pacing keeps the queue short, and the window has room for all of it.
  const Nanoseconds longest =
      std::clamp<Nanoseconds>(Jitter() - kSmallJitter, 0, Jitter() / 2) * (doubt_.is_jitter_slow() ? 4 : 1);
  const Nanoseconds held_up = has_short_queue_ ? std::max(CompressionJitter(), HeldUp() / 2) : HeldUp() / 2;
  const BitsPerSecond bandwidth = std::min(max_bandwidth(), slower_link_.most());
  const double window = BdpBytes(CwndGain(), bandwidth) + BytesIn(bandwidth, std::max(longest, held_up)) +
                        correction_.bytes() + free_link_.room(BdpBytes(1.0, max_bandwidth()));
  BbrController::MoveCwnd(ack, is_steered ? static_cast<Bytes>(window) : target);
}

Metrics AgentController::metrics() const {
  Metrics metrics = BbrController::metrics();
  metrics.Set(Metric::cycle_index, std::numeric_limits<double>::quiet_NaN());
  // The RTT of the BDP: an agent that knew only the ten seconds would take newcomers, who keep the queue from draining
  // for longer, for rivals that fill it.
  if (base_rtt_.Least() > 0) metrics.Set(Metric::min_rtt_ms, static_cast<double>(BaseRtt()) / 1e6);
  if (highest_bandwidth_ > 0)
    metrics.Set(Metric::highest_bandwidth_mbps, static_cast<double>(highest_bandwidth_) / 1e6);
  // With the jitter, too: these are compared with min_rtt_ms.
  if (const Nanoseconds rtt = standing_rtt_.value(); rtt > 0) {
    metrics.Set(Metric::standing_rtt_ms, static_cast<double>(WithJitter(rtt)) / 1e6);
  }
  if (lowest_rtt_ > 0) metrics.Set(Metric::lowest_rtt_ms, static_cast<double>(WithJitter(lowest_rtt_)) / 1e6);
  return metrics;
}

}  // namespace bbrgym
