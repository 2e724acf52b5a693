#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "baselines/cc/controller.h"
#include "baselines/cc/rtt_jumps.h"
#include "baselines/cc/rtt_persistence.h"
#include "baselines/cc/rtt_sample.h"
#include "baselines/cc/rtt_step.h"
#include "baselines/cc/units.h"

namespace bbrgym {

/// Finds out where base_rtt is too short for the path, so that a window of one BDP starves the flow: the path has
/// become longer, or its RTTs vary without a queue (jitter, ACKs that leave the receiver together, satellites).
///
/// The queue of rivals looks the same, so a doubt is tested. For a moment the flow sends nearly as fast as it ever
/// could: a queue would grow or overflow, a path does neither. Then ProbeRTT, which other flows of agents join: a queue
/// would become shorter. Where RTTs have become longer in one step, or grow evenly, adding is enough.
class PathDoubt {
 public:
  struct State {
    /// Without jitter.
    Nanoseconds base_rtt = 0;
    bool is_probe_bw = false;
    /// More is in flight than the window allows: what the flow itself has in the queue is about to leave it.
    bool is_draining = false;
    /// The packets that are sent from then on meet a drained queue; 0 where there is none.
    Nanoseconds drained_since = 0;
    std::optional<RttRise> rise;
    BitsPerSecond bandwidth = 0;
    /// Whether ACK compression shows jitter, or the rate changes all the time: what looks like jumps of the path is the
    /// doing of these.
    bool explains_jumps = false;
  };

  /// Less counts as no jitter.
  static Nanoseconds LeastJitter(Nanoseconds base_rtt) { return base_rtt / 200 + 3 * kMillisecond / 10; }

  /// A flow with at least this share of its highest bandwidth has no doubt, unless RTTs step, rise or jump; with 0
  /// there is none.
  PathDoubt(double below, Bytes packet_bytes) : below_(below), packet_bytes_(packet_bytes) {}

  /// Takes an ACK, and returns whether ProbeRTT should begin, to complete a test.
  bool OnAck(const AckEvent& ack, const State& state) {
    longer_rtt_ = 0;
    found_bandwidth_ = 0;
    has_found_jitter_ = false;
    if (below_ == 0.0) return false;
    highest_bandwidth_ = std::max(highest_bandwidth_, state.bandwidth);
    MeasureDrained(ack, state);
    const bool is_steady_step = WatchSteps(ack, state);
    if (is_adding()) return Test(ack, state);
    if (held_bandwidth_ > 0) EndHold(ack);
    if (is_steady_step && CanTest(ack, state)) {
      TestStep(ack, state);
    } else {
      Watch(ack, state);
    }
    return false;
  }

  /// Whether the flow tests a doubt by sending faster: at `rate`, with `added` bytes more in flight.
  bool is_adding() const { return added_ > 0; }
  Bytes added() const { return added_; }
  BitsPerSecond rate() const { return rate_; }
  /// Whether the test sends at that rate whatever the agent's gain is.
  bool is_rate_exact() const { return doubt_.sign == Sign::kRise; }
  /// max_bandwidth of before the test, as long as the rates that are measured are those of a test that does not confirm
  /// the doubt; else 0. What the flow took from others must not become its share.
  BitsPerSecond held_bandwidth() const { return held_bandwidth_; }

  /// The base_rtt of a path that is longer, as confirmed by this ACK; else 0.
  Nanoseconds longer_rtt() const { return longer_rtt_; }
  /// The bandwidth of a test that this ACK confirms; else 0.
  BitsPerSecond found_bandwidth() const { return found_bandwidth_; }
  /// Whether this ACK confirms jitter of a flow that knew of none: it may have ended Startup.
  bool has_found_jitter() const { return has_found_jitter_; }
  /// What the mean RTT has beyond base_rtt without a queue, as confirmed by the last tests.
  Nanoseconds jitter() const { return jitter_; }
  /// Whether RTTs keep a jitter for some time, as over satellites: that of packets sent one after another is the same.
  bool is_jitter_slow() const { return jitter_ > 0 && is_slow_; }

 private:
  static constexpr Nanoseconds kSpan = 300 * kMillisecond;
  static constexpr std::size_t kSpans = 6;
  /// Of as many times the duration are the longest spans.
  static constexpr std::size_t kLongest = 4;
  /// What the flows on a slow link may have in the queue, however few packets each of them wants there.
  static constexpr std::int64_t kPacketsOfMany = 20;
  /// So many spans, one later than the other, are a rise…
  static constexpr std::size_t kRising = 4;
  /// …and so many for a moment after a rise, since a path that grows goes on to grow.
  static constexpr std::size_t kRisingAgain = 2;
  static constexpr Nanoseconds kRisesAgain = 5 * kSecond;
  /// A flow whose RTTs jump, or that sees jitter, has a doubt below this share of its highest bandwidth.
  static constexpr double kJitterBelow = 0.8;
  /// So many tests need no loss of bandwidth where packets are held up and the queue is empty at times.
  static constexpr int kEarlyTests = 3;
  /// RTTs that vary by less than this part of their excess are those of a path…
  static constexpr int kFlat = 16;
  /// …and a test sends at most so many times the present bandwidth more: on a link that has become slow, what the flow
  /// once had would be a queue of seconds.
  static constexpr double kMostFaster = 8.0;
  /// That a rival sends at once.
  static constexpr std::int64_t kBurstPackets = 4;
  /// So many packets that closely follow another one tell jitter from a queue…
  static constexpr std::int64_t kClosePackets = 16;
  /// …and jitter exceeds the delay that a burst of others may add at once.
  static constexpr Nanoseconds kBurstDelay = kMillisecond / 2;
  /// For how long the test of a step or of a rise measures.
  static constexpr Nanoseconds kShortSpan = 100 * kMillisecond;
  /// A test of a step adds what a path as long as this needs, and a queue of this share of the delay.
  static constexpr double kStepGain = 1.25;
  static constexpr Nanoseconds kUnknown = std::numeric_limits<Nanoseconds>::max();

  /// What makes RTTs vary, as far as it can be told.
  enum class Scatter { kUnknown, kJitter, kQueue };

  /// What gives reason to a doubt.
  enum class Sign { kStarving, kStep, kRise, kJumps };

  /// How long a flow waits after a test that has failed.
  class Pause {
   public:
    bool is_over(Nanoseconds now) const { return now >= end_; }
    /// The longer, the more tests in a row had a clear result.
    void Begin(Nanoseconds now, bool is_clear) {
      if (is_clear) duration_ = std::min(2 * duration_, kLongest);
      end_ = now + duration_;
    }
    void Reset() { *this = {}; }

   private:
    static constexpr Nanoseconds kLongest = 32 * kSecond;
    Nanoseconds duration_ = kSecond;
    Nanoseconds end_ = 0;
  };

  struct WatchedSpan {
    RttSample rtts;
    RttVariation variation;
    /// From one packet to the next, beyond the gap.
    Nanoseconds largest_rise = 0;
    /// How many were sent within a quarter of the present delay after another one.
    std::int64_t close_packets = 0;
  };

  struct Doubt {
    Sign sign = Sign::kStarving;
    /// Of the mean RTT, and of the smallest one, over base_rtt.
    Nanoseconds excess = 0;
    Nanoseconds least_excess = 0;
    Nanoseconds mean_rtt = 0;
    /// By how much RTTs grow per time, and since when.
    double growth = 0.0;
    Nanoseconds grows_since = 0;
    /// Whether RTTs keep for some time what they have beyond base_rtt.
    bool is_slow = false;
    /// Whether the flow has lost nothing.
    bool is_early = false;
    /// For how long a test measures.
    Nanoseconds span = 0;
    /// How many tests it has to pass in a row: in one of several, others may have made room.
    int passes = 1;
    /// The mean RTT of a path without a longer queue.
    Nanoseconds ExpectedRtt(Nanoseconds now) const {
      return mean_rtt + static_cast<Nanoseconds>(growth * static_cast<double>(now - grows_since));
    }
    bool needs_probe_rtt() const { return sign == Sign::kStarving || sign == Sign::kJumps; }
  };

  /// Less is not doubted unless the flow sees jitter.
  static Nanoseconds LeastDoubt(Nanoseconds base_rtt) { return base_rtt / 100 + kMillisecond / 2; }
  /// More than a short queue.
  static bool IsLarge(Nanoseconds excess, Nanoseconds base_rtt) { return excess > base_rtt / 8 + 2 * kMillisecond; }
  /// More than RTTs scatter.
  static bool IsNotable(Nanoseconds excess, Nanoseconds base_rtt) { return excess > base_rtt / 32 + 2 * kMillisecond; }

  /// Whether at the highest bandwidth more packets are sent in this time.
  bool IsMoreThan(std::int64_t packets, Nanoseconds time) const {
    return BytesIn(highest_bandwidth_, time) > static_cast<double>(packets * packet_bytes_);
  }

  static bool CanTest(const AckEvent& ack, const State& state) {
    return state.is_probe_bw && !ack.sample.is_app_limited;
  }

  /// Returns whether RTTs have become longer in one step, and are steady now.
  bool WatchSteps(const AckEvent& ack, const State& state) {
    if (!step_.is_step()) {
      step_bandwidth_ = state.bandwidth;
      step_pause_.Reset();
    }
    const bool is_steady = step_.OnAck(ack);
    if (!step_.is_steady_since()) step_bandwidth_ = 0;
    return is_steady && step_pause_.is_over(ack.now) && step_.steady().mean() - state.base_rtt > jitter_;
  }

  void TestStep(const AckEvent& ack, const State& state) {
    const RttSample& steady = step_.steady();
    doubt_ = {.sign = Sign::kStep,
              .excess = steady.mean() - state.base_rtt,
              .least_excess = steady.least - state.base_rtt,
              .mean_rtt = steady.mean(),
              .span = kShortSpan};
    // If the path is all that has changed, the flow needs the bandwidth of before.
    const BitsPerSecond bandwidth =
        step_bandwidth_ > 0 ? step_bandwidth_ : std::min(state.bandwidth, ack.sample.delivery_rate);
    const double added = kStepGain * BytesIn(bandwidth, doubt_.excess);
    const double faster = kStepGain * static_cast<double>(bandwidth) * static_cast<double>(doubt_.excess) /
                          static_cast<double>(doubt_.mean_rtt);
    rate_ = std::max(bandwidth, ack.sample.delivery_rate + static_cast<BitsPerSecond>(faster));
    Begin(ack.now, bandwidth, static_cast<Bytes>(added));
  }

  void Watch(const AckEvent& ack, const State& state) {
    if (!state.is_probe_bw || state.is_draining) return Restart(ack.now);
    if (ack.rtt > 0) span_.rtts.Add(ack.rtt);
    persistence_.OnAck(ack.now, ack.rtt);
    if (state.rise) {
      const RttSample& last = spans_.back().rtts;
      if (last.count > 0 && 4 * state.rise->gap < last.mean() - state.base_rtt) ++span_.close_packets;
      span_.largest_rise = std::max(span_.largest_rise, state.rise->beyond_gap);
      if (IsMoreThan(kBurstPackets, state.rise->unexplained)) jumps_.Add();
    }
    if (!span_.rtts.is_enough() || ack.now - span_start_ < kSpan) return;
    span_.variation = persistence_.EndSpan();
    std::rotate(spans_.begin(), spans_.begin() + 1, spans_.end());
    spans_.back() = std::exchange(span_, {});
    jumps_.EndSpan();
    watched_ = std::min(watched_ + 1, spans_.size());
    span_start_ = ack.now;
    for (std::size_t length = 1; length <= kLongest && !is_adding(); length *= 2) {
      TestRise(ack.now, state, length);
      if (watched_ >= kSpans * length && !is_adding()) Judge(ack.now, state, length);
    }
  }

  /// Returns the RTTs of a span that consists of this many, with as many such spans after it.
  RttSample Rtts(std::size_t length, std::size_t later) const {
    RttSample rtts;
    for (std::size_t k = 0; k < length; ++k) rtts.Add(spans_[spans_.size() - (later + 1) * length + k].rtts);
    return rtts;
  }

  /// Tests whether RTTs grow because the path does, if they grow evenly over spans that consist of this many.
  void TestRise(Nanoseconds now, const State& state, std::size_t length) {
    const bool is_again = rose_at_ > 0 && now - rose_at_ < kRisesAgain;
    const std::size_t spans = is_again ? kRisingAgain : kRising;
    if (watched_ < spans * length) return;
    const RttSample last = Rtts(length, 0);
    const Nanoseconds rise = last.mean() - Rtts(length, spans - 1).mean();
    const Nanoseconds excess = last.mean() - state.base_rtt;
    const bool is_notable = is_again ? 4 * (excess - jitter_) > 3 * kMillisecond
                                     : 2 * (excess - jitter_) > 3 * kMillisecond && 4 * rise > 3 * kMillisecond;
    if (!is_notable || 2 * excess > state.base_rtt || !IsEven(length, spans, rise, excess - jitter_)) return;
    // A queue would grow by so much that others cannot make room for it by chance.
    const BitsPerSecond missing = highest_bandwidth_ - state.bandwidth;
    const double added = BytesIn(missing, last.mean());
    if (added < (is_again ? 0.5 : 2.0) * BytesIn(highest_bandwidth_, excess)) return;
    doubt_ = {.sign = Sign::kRise,
              .excess = excess,
              .least_excess = last.least - state.base_rtt,
              .mean_rtt = last.mean(),
              .growth = static_cast<double>(rise) / static_cast<double>((spans - 1) * length * kSpan),
              .grows_since = now - static_cast<Nanoseconds>(length) * kSpan / 2,
              .span = kShortSpan};
    rate_ = highest_bandwidth_;
    Begin(now, state.bandwidth, static_cast<Bytes>(added));
  }

  /// Whether RTTs grow by nearly the same from span to span, and hardly vary within one. In a queue of several flows
  /// they vary by as much as they grow.
  bool IsEven(std::size_t length, std::size_t spans, Nanoseconds rise, Nanoseconds excess) const {
    const auto steps = static_cast<Nanoseconds>(spans - 1);
    const Nanoseconds most_varied = excess / 4 + rise / steps + kMillisecond;
    for (std::size_t i = 0; i < spans; ++i) {
      const RttSample rtts = Rtts(length, i);
      if (rtts.most - rtts.least > most_varied) return false;
      if (i + 1 == spans) continue;
      const Nanoseconds growth = rtts.mean() - Rtts(length, i + 1).mean();
      if (growth <= 0 || 3 * growth * steps < 2 * rise) return false;
    }
    return true;
  }

  /// Judges the last spans, each of which consists of this many.
  void Judge(Nanoseconds now, const State& state, std::size_t length) {
    Nanoseconds sum = 0;
    Nanoseconds least_mean = kUnknown;
    Nanoseconds least = kUnknown;
    bool is_emptied = true;
    bool is_standing = true;
    for (std::size_t i = 0; i < kSpans; ++i) {
      const RttSample rtts = Rtts(length, i);
      const Nanoseconds excess = rtts.mean() - state.base_rtt;
      const Nanoseconds least_excess = rtts.least - state.base_rtt;
      sum += excess;
      least_mean = std::min(least_mean, excess);
      least = std::min(least, least_excess);
      is_emptied = is_emptied && 5 * least_excess <= excess;
      // Where packets stay in order, many of them wait for a few that a large jitter holds up.
      is_standing = is_standing && 5 * least_excess > 3 * excess &&
                    (!IsLarge(jitter_, state.base_rtt) || 2 * least_excess > 3 * jitter_);
    }
    // A queue that never empties is not jitter: the flow has more room than it needs. Nor is one that is smooth; where
    // jitter holds up many packets, this takes longer to see. But where RTTs jump, the path may have become longer.
    const bool are_jumps_frequent = jumps_.are_frequent() && !state.explains_jumps;
    const std::size_t smooth_length = is_slow_ || IsLarge(jitter_, state.base_rtt) ? 2 : 1;
    const bool is_smooth = length == smooth_length && LookForJitter(length, jitter_) == Scatter::kQueue;
    if ((is_standing || is_smooth) && !are_jumps_frequent) jitter_ = 0;
    const Nanoseconds mean = sum / static_cast<Nanoseconds>(kSpans);
    // A longer delay than the path's would not be a variation of it.
    const bool is_jumping = are_jumps_frequent && IsLarge(mean, state.base_rtt) && mean <= state.base_rtt;
    const bool is_steady = 5 * mean <= 7 * least_mean;
    Nanoseconds excess = is_steady ? least_mean : mean;
    const Scatter scatter = LookForJitter(length, excess);
    const bool is_jitter = is_emptied && !is_jumping && scatter == Scatter::kJitter;
    // The rest may be a queue of others, which was not there in the last ProbeRTTs.
    if (is_jitter) excess = std::min({excess, excesses_.back(), excesses_[1]});
    const bool is_new = excess > jitter_ + jitter_ / 12;
    // Jitter may have ended Startup, so that the flow does not know what it could have.
    const bool is_early =
        tests_ < kEarlyTests && !IsLarge(jitter_, state.base_rtt) && scatter == Scatter::kJitter && 5 * least <= mean;
    const double below = is_jumping || is_jitter ? std::max(below_, kJitterBelow) : below_;
    const bool is_starving = static_cast<double>(state.bandwidth) < below * static_cast<double>(highest_bandwidth_);
    // The queue of others comes and goes, and the flow's own one was not there in the last ProbeRTT.
    const bool is_flat = length == 1 && kFlat * (mean - least) <= mean;
    if (!pause_.is_over(now) || !(is_steady || is_jumping) || !is_new || !(is_starving || is_early || is_flat)) return;
    const bool is_large = IsLarge(excess, state.base_rtt);
    if (length > 1 && !is_large) return;
    if (!is_large && !is_flat && scatter == Scatter::kQueue) return;
    const std::int64_t packets = tests_ == 0 || is_early || is_flat ? 0 : kPacketsOfMany;
    if (!is_jumping && !IsDoubtful(excess, is_large, is_emptied, is_jitter, packets, state)) return;
    doubt_ = {.sign = is_jumping ? Sign::kJumps : Sign::kStarving,
              .excess = excess,
              .least_excess = least,
              .mean_rtt = state.base_rtt + mean,
              .is_slow = !is_emptied && IsSlow(length, excess),
              .is_early = !is_starving,
              .span = static_cast<Nanoseconds>(is_jumping ? std::max<std::size_t>(length, 2) : length) * kSpan,
              .passes = is_jumping || is_jitter ? 1
                        : !is_large             ? 3
                        : is_emptied            ? 2
                                                : 1};
    ++tests_;
    // What the jitter takes, if that is what it is. Else nearly what the flow had, and at least nearly twice the
    // present bandwidth.
    const auto bandwidth = static_cast<double>(state.bandwidth);
    const double missing = 0.8 * static_cast<double>(highest_bandwidth_ - state.bandwidth);
    const double taken = kStepGain * bandwidth * static_cast<double>(excess) / static_cast<double>(state.base_rtt);
    const double faster_path = std::clamp(missing, 0.9 * bandwidth, kMostFaster * bandwidth);
    const auto faster = static_cast<BitsPerSecond>(is_jitter ? taken : faster_path);
    rate_ = state.bandwidth + faster;
    Begin(now, state.bandwidth, static_cast<Bytes>(BytesIn(faster, doubt_.mean_rtt)));
  }

  /// Whether RTTs have varied slowly in half of these spans.
  bool IsSlow(std::size_t length, Nanoseconds excess) const {
    const auto spans = static_cast<std::ptrdiff_t>(kSpans * length);
    const auto is_slow = [excess](const WatchedSpan& span) { return span.variation.is_slow(excess); };
    return 2 * std::count_if(spans_.end() - spans, spans_.end(), is_slow) >= spans;
  }

  /// Judges by the packets that were sent closely after another one. In a queue both wait for nearly the same time,
  /// while jitter holds up single packets.
  Scatter LookForJitter(std::size_t length, Nanoseconds excess) const {
    const auto spans = static_cast<std::ptrdiff_t>(kSpans * length);
    Nanoseconds largest_rise = 0;
    std::int64_t close_packets = 0;
    std::ptrdiff_t jittery = 0;
    for (auto span = spans_.end() - spans; span != spans_.end(); ++span) {
      largest_rise = std::max(largest_rise, span->largest_rise);
      close_packets += span->close_packets;
      jittery += 2 * span->largest_rise > excess && span->largest_rise > kBurstDelay ? 1 : 0;
    }
    if (2 * jittery >= spans) return Scatter::kJitter;
    return 2 * largest_rise <= excess && close_packets >= kClosePackets ? Scatter::kQueue : Scatter::kUnknown;
  }

  /// Whether an excess of more than so many packets gives reason to a test.
  bool IsDoubtful(Nanoseconds excess, bool is_large, bool is_emptied, bool is_jitter, std::int64_t packets,
                  const State& state) const {
    const bool has_drained = excesses_.back() != kUnknown;
    const bool is_starved = 8 * state.bandwidth < highest_bandwidth_;
    // A queue that others join in emptying was not there in the last ProbeRTT. But a flow that has next to nothing
    // cannot wait for another one.
    if (has_drained) {
      const bool was_there = is_large ? 2 * excesses_.back() >= excess : 4 * excesses_.back() >= 3 * excess;
      if (!was_there && !(is_large && is_starved)) return false;
    }
    if (is_emptied) return excess > (is_jitter ? LeastJitter(state.base_rtt) : LeastDoubt(state.base_rtt));
    // A starved flow has nothing to lose.
    return (is_large || (has_drained && IsNotable(excess, state.base_rtt))) &&
           (is_starved || IsMoreThan(packets, excess));
  }

  void Begin(Nanoseconds now, BitsPerSecond bandwidth, Bytes added) {
    held_bandwidth_ = bandwidth;
    added_ = added;
    adding_since_ = now;
    lost_ = 0;
    acked_ = 0;
    taken_ = 0;
    latest_ = {};
    met_ = {};
  }

  /// Returns whether the queue has not grown, and ProbeRTT should follow.
  bool Test(const AckEvent& ack, const State& state) {
    if (!CanTest(ack, state)) {
      taken_ = highest_bandwidth_;
      Stop(ack.now);
      return false;
    }
    lost_ += ack.bytes_lost;
    acked_ += ack.bytes_acked;
    const bool is_too_long = ack.now - adding_since_ > 3 * kSecond + 8 * doubt_.mean_rtt;
    // Beside random loss, of 2 %.
    const bool is_overflowing = lost_ > added_ / 8 + 2 * packet_bytes_ + acked_ / 50;
    if (is_too_long || is_overflowing) {
      Fail(ack.now);
      return false;
    }
    const Nanoseconds sent = ack.now - ack.rtt;
    if (ack.rtt <= 0 || sent < adding_since_) return false;
    taken_ = std::max(taken_, ack.sample.delivery_rate);
    // Do not fill the queue for longer than needed.
    latest_.Add(ack.rtt);
    if (latest_.is_enough()) {
      const Nanoseconds most = doubt_.needs_probe_rtt() ? 2 * doubt_.excess : doubt_.excess;
      if (latest_.mean() > doubt_.ExpectedRtt(ack.now) + most) {
        Fail(ack.now);
        return false;
      }
      latest_ = {};
    }
    // These packets meet all that was added before.
    if (sent < adding_since_ + doubt_.mean_rtt) return false;
    if (met_.count == 0) met_since_ = ack.now;
    met_.Add(ack.rtt);
    if (!met_.is_enough() || ack.now - met_since_ < doubt_.span) return false;
    const Nanoseconds growth = met_.mean() - doubt_.ExpectedRtt(ack.now);
    if (2 * growth > doubt_.excess) {
      Fail(ack.now, growth > doubt_.excess);
      return false;
    }
    return Pass(ack.now, state);
  }

  bool Pass(Nanoseconds now, const State& state) {
    added_ = 0;
    held_bandwidth_ = 0;
    Restart(now);
    if (!doubt_.needs_probe_rtt()) {
      rose_at_ = doubt_.sign == Sign::kRise ? now : 0;
      // RTTs have grown since then.
      if (rose_at_ > 0) doubt_.least_excess = met_.least - state.base_rtt;
      TakeLonger(state.base_rtt);
      return false;
    }
    is_confirming_ = ++passes_ >= doubt_.passes;
    return is_confirming_;
  }

  /// Where RTTs vary, a test can fail by chance. If it is not clear that there is a queue, the pause does not grow.
  void Fail(Nanoseconds now, bool is_clear = true) {
    Stop(now);
    if (doubt_.sign == Sign::kStep) {
      step_bandwidth_ = 0;
      step_pause_.Begin(now, is_clear);
    } else if (doubt_.needs_probe_rtt()) {
      passes_ = 0;
      pause_.Begin(now, is_clear && !is_jitter_slow() && !doubt_.is_early);
    }
  }

  void Stop(Nanoseconds now) {
    added_ = 0;
    stopped_at_ = now;
    Restart(now);
  }

  /// Takes an ACK after a test that did not pass.
  void EndHold(const AckEvent& ack) {
    if (ack.rtt <= 0) return;
    taken_ = std::max(taken_, ack.sample.delivery_rate);
    if (ack.now - ack.rtt < stopped_at_) return;
    held_bandwidth_ = 0;
    // If the flow is alone, this is the rate of a link that has become slower.
    highest_bandwidth_ = taken_;
  }

  /// Measures the delay that packets have in a ProbeRTT, when the queue has drained. Jitter is at most the median of
  /// the last three.
  void MeasureDrained(const AckEvent& ack, const State& state) {
    if (state.drained_since > 0) {
      if (drained_begin_ == 0) drained_begin_ = state.drained_since;
      drained_end_ = ack.now;
    }
    if (drained_begin_ == 0 || ack.rtt <= 0) return;
    const Nanoseconds sent = ack.now - ack.rtt;
    if (sent <= drained_end_) {
      if (sent >= drained_begin_) drained_.Add(ack.rtt);
      return;
    }
    if (drained_.count > 1) {
      const Nanoseconds excess = drained_.mean() - state.base_rtt;
      std::rotate(excesses_.begin(), excesses_.begin() + 1, excesses_.end());
      excesses_.back() = excess;
      if (is_confirming_) Confirm(ack.now, excess, state.base_rtt);
      jitter_ = std::min(jitter_, MedianExcess());
      if (jitter_ < LeastJitter(state.base_rtt)) jitter_ = 0;
    }
    drained_ = {};
    drained_begin_ = 0;
  }

  Nanoseconds MedianExcess() const {
    std::array<Nanoseconds, 3> sorted = excesses_;
    std::sort(sorted.begin(), sorted.end());
    return sorted[1];
  }

  void Confirm(Nanoseconds now, Nanoseconds excess, Nanoseconds base_rtt) {
    is_confirming_ = false;
    passes_ = 0;
    // Within a ProbeRTT RTTs that jump may be those of a short path.
    const Nanoseconds needed = doubt_.sign == Sign::kJumps ? doubt_.excess / 2 : doubt_.excess * 3 / 4;
    if (excess < needed) return Fail(now, 2 * excess < doubt_.excess);
    pause_.Reset();
    const bool is_longer = 5 * doubt_.least_excess > 3 * doubt_.excess && IsNotable(doubt_.least_excess, base_rtt);
    if (is_longer) TakeLonger(base_rtt);
    is_slow_ = doubt_.is_slow;
    has_found_jitter_ = jitter_ == 0 && !is_longer;
    jitter_ = is_longer ? doubt_.excess - doubt_.least_excess : doubt_.excess;
    // Two later ProbeRTTs can end it; those of before the path changed cannot.
    excesses_.fill(jitter_);
  }

  void TakeLonger(Nanoseconds base_rtt) {
    longer_rtt_ = base_rtt + doubt_.least_excess;
    found_bandwidth_ = std::min(taken_, rate_);
    step_.Forget();
  }

  void Restart(Nanoseconds now) {
    span_ = {};
    persistence_.EndSpan();
    span_start_ = now;
    watched_ = 0;
  }

  double below_;
  Bytes packet_bytes_;

  /// Of the flow so far, or since a test that failed what it had in that test.
  BitsPerSecond highest_bandwidth_ = 0;

  // What the flow watches: steps, how long RTTs last, jumps, the present span, and the last ones.
  RttStep step_;
  RttPersistence persistence_;
  RttJumps jumps_;
  WatchedSpan span_;
  Nanoseconds span_start_ = 0;
  std::array<WatchedSpan, kSpans * kLongest> spans_ = {};
  std::size_t watched_ = 0;

  // What it doubts, and how it tests that.
  Doubt doubt_;
  Bytes added_ = 0;
  BitsPerSecond rate_ = 0;
  BitsPerSecond held_bandwidth_ = 0;
  Nanoseconds adding_since_ = 0;
  Bytes lost_ = 0;
  Bytes acked_ = 0;
  BitsPerSecond taken_ = 0;  // the highest rate of its packets' delivery
  RttSample latest_;
  RttSample met_;
  Nanoseconds met_since_ = 0;
  int passes_ = 0;
  bool is_confirming_ = false;
  int tests_ = 0;            // of what varies
  Nanoseconds rose_at_ = 0;  // when a rise was confirmed, if that is the last thing that was
  Pause pause_;
  Nanoseconds stopped_at_ = 0;
  BitsPerSecond step_bandwidth_ = 0;  // of before the step; 0 if that is too much now
  Pause step_pause_;

  // What it finds.
  Nanoseconds longer_rtt_ = 0;
  BitsPerSecond found_bandwidth_ = 0;
  bool has_found_jitter_ = false;
  Nanoseconds jitter_ = 0;
  bool is_slow_ = false;

  // What the last ProbeRTTs had beyond base_rtt, the latest at the end, and the present one.
  std::array<Nanoseconds, 3> excesses_ = {kUnknown, kUnknown, kUnknown};
  RttSample drained_;
  Nanoseconds drained_begin_ = 0;  // 0 if there is no measurement
  Nanoseconds drained_end_ = 0;
};

}  // namespace bbrgym
