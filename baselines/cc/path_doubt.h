#pragma once

#include <algorithm>
#include <array>
#include <limits>

#include "baselines/cc/controller.h"
#include "baselines/cc/rtt_sample.h"
#include "baselines/cc/units.h"

namespace bbrgym {

/// Finds out where base_rtt is too short for the path, so that a window of one BDP starves the flow: the path has
/// become longer, or its RTTs vary without a queue (jitter, ACKs that leave the receiver together, satellites).
///
/// The queue of rivals looks the same, so a doubt is tested. For a moment the flow sends nearly as fast as it ever
/// could: a queue would grow or overflow, a path does neither. Then ProbeRTT, which other flows of agents join: a queue
/// would become shorter.
class PathDoubt {
 public:
  struct State {
    /// Without jitter.
    Nanoseconds base_rtt = 0;
    bool is_probe_bw = false;
    /// The packets that are sent from then on meet a drained queue; 0 where there is none.
    Nanoseconds drained_since = 0;
    BitsPerSecond bandwidth = 0;
  };

  /// A flow with at least this share of its highest bandwidth has no doubt; with 0 there is none.
  PathDoubt(double below, Bytes packet_bytes) : below_(below), packet_bytes_(packet_bytes) {}

  /// Takes an ACK, and returns whether ProbeRTT should begin, to complete a test.
  bool OnAck(const AckEvent& ack, const State& state) {
    longer_rtt_ = 0;
    found_bandwidth_ = 0;
    highest_bandwidth_ = std::max(highest_bandwidth_, state.bandwidth);
    MeasureDrained(ack, state);
    if (is_adding()) return Test(ack, state);
    if (held_bandwidth_ > 0) EndFailure(ack);
    Watch(ack, state);
    return false;
  }

  /// Whether the flow tests a doubt by sending faster: at `rate`, with `added` bytes more in flight.
  bool is_adding() const { return added_ > 0; }
  Bytes added() const { return added_; }
  BitsPerSecond rate() const { return rate_; }
  /// max_bandwidth of before the test, as long as the rates that are measured are those of a test that does not confirm
  /// the doubt; else 0. What the flow took from others must not become its share.
  BitsPerSecond held_bandwidth() const { return held_bandwidth_; }

  /// The base_rtt of a path that is longer, as confirmed by this ACK; else 0.
  Nanoseconds longer_rtt() const { return longer_rtt_; }
  /// The bandwidth of a test that this ACK confirms; else 0.
  BitsPerSecond found_bandwidth() const { return found_bandwidth_; }
  /// What the mean RTT has beyond base_rtt without a queue, as confirmed by the last tests.
  Nanoseconds jitter() const { return jitter_; }

 private:
  // As many RTTs as HyStart++ needs (RFC 9406, section 4.3).
  static constexpr std::int64_t kMinSamples = 8;
  static constexpr Nanoseconds kSpan = 300 * kMillisecond;
  static constexpr std::size_t kSpans = 6;
  static constexpr Nanoseconds kFirstPause = kSecond;
  static constexpr Nanoseconds kLongestPause = 32 * kSecond;
  /// What the flows on a slow link may have in the queue, however few packets each of them wants there.
  static constexpr std::int64_t kPacketsOfMany = 20;
  static constexpr Nanoseconds kUnknown = std::numeric_limits<Nanoseconds>::max();

  /// Less counts as none.
  static Nanoseconds LeastJitter(Nanoseconds base_rtt) { return base_rtt / 100 + kMillisecond / 2; }
  /// More than a short queue.
  static bool IsLarge(Nanoseconds excess, Nanoseconds base_rtt) { return excess > base_rtt / 8 + 2 * kMillisecond; }

  void Watch(const AckEvent& ack, const State& state) {
    if (!state.is_probe_bw) return Restart(ack.now);
    if (ack.rtt > 0) span_.Add(ack.rtt);
    if (span_.count < kMinSamples || ack.now - span_start_ < kSpan) return;
    std::rotate(spans_.begin(), spans_.begin() + 1, spans_.end());
    spans_.back() = span_;
    watched_ = std::min(watched_ + 1, kSpans);
    span_ = {};
    span_start_ = ack.now;
    if (watched_ == kSpans) Judge(ack.now, state);
  }

  void Judge(Nanoseconds now, const State& state) {
    Nanoseconds sum = 0;
    Nanoseconds least_mean = kUnknown;
    Nanoseconds least = kUnknown;
    bool is_emptied = true;
    bool is_standing = true;
    for (const RttSample& span : spans_) {
      const Nanoseconds excess = span.mean() - state.base_rtt;
      const Nanoseconds least_excess = span.least - state.base_rtt;
      sum += excess;
      least_mean = std::min(least_mean, excess);
      least = std::min(least, least_excess);
      is_emptied = is_emptied && 5 * least_excess <= excess;
      // Where packets stay in order, many of them wait for a few that a large jitter holds up.
      is_standing = is_standing && 5 * least_excess > 3 * excess &&
                    (!IsLarge(jitter_, state.base_rtt) || 2 * least_excess > 3 * jitter_);
    }
    // A queue that never empties is not jitter: the flow has more room than it needs.
    if (is_standing) jitter_ = 0;
    const Nanoseconds mean = sum / static_cast<Nanoseconds>(kSpans);
    const bool is_steady = 5 * mean <= 7 * least_mean;
    const bool is_new = least_mean > jitter_ + jitter_ / 4;
    const bool is_starving = static_cast<double>(state.bandwidth) < below_ * static_cast<double>(highest_bandwidth_);
    if (now < next_test_ || !is_steady || !is_new || !is_starving || !IsDoubtful(least_mean, is_emptied, state)) return;
    doubted_ = least_mean;
    doubted_least_ = least;
    before_ = state.base_rtt + mean;
    Begin(now, state);
  }

  bool IsDoubtful(Nanoseconds excess, bool is_emptied, const State& state) const {
    if (is_emptied) return excess > LeastJitter(state.base_rtt);
    // The first time even a few packets give reason to a test: jitter may have ended Startup, so that
    // highest_bandwidth is low.
    const std::int64_t packets = is_tested_ ? kPacketsOfMany : 0;
    return IsLarge(excess, state.base_rtt) &&
           BytesIn(highest_bandwidth_, excess) > static_cast<double>(packets * packet_bytes_);
  }

  void Begin(Nanoseconds now, const State& state) {
    // Nearly its highest bandwidth, and at least nearly twice the present one.
    const auto missing = 0.8 * static_cast<double>(highest_bandwidth_ - state.bandwidth);
    const auto faster = static_cast<BitsPerSecond>(std::max(missing, 0.9 * static_cast<double>(state.bandwidth)));
    rate_ = state.bandwidth + faster;
    held_bandwidth_ = state.bandwidth;
    added_ = static_cast<Bytes>(BytesIn(faster, before_));
    adding_since_ = now;
    lost_ = 0;
    taken_ = 0;
    latest_ = {};
    met_ = {};
    is_tested_ = true;
  }

  /// Returns whether the queue has not grown.
  bool Test(const AckEvent& ack, const State& state) {
    lost_ += ack.bytes_lost;
    const bool is_too_long = ack.now - adding_since_ > 2 * kSecond + 8 * before_;
    const bool is_void = !state.is_probe_bw || ack.sample.is_app_limited || is_too_long;
    if (is_void) taken_ = highest_bandwidth_;
    if (is_void || lost_ > added_ / 8 + 2 * packet_bytes_) {
      Fail(ack.now);
      return false;
    }
    const Nanoseconds sent = ack.now - ack.rtt;
    if (ack.rtt <= 0 || sent < adding_since_) return false;
    taken_ = std::max(taken_, ack.sample.delivery_rate);
    // Do not fill the queue for longer than needed.
    latest_.Add(ack.rtt);
    if (latest_.count >= kMinSamples) {
      if (latest_.mean() > before_ + 2 * doubted_) {
        Fail(ack.now);
        return false;
      }
      latest_ = {};
    }
    // These packets meet all that was added before.
    if (sent < adding_since_ + before_) return false;
    if (met_.count == 0) met_since_ = ack.now;
    met_.Add(ack.rtt);
    if (met_.count < kMinSamples || ack.now - met_since_ < kSpan) return false;
    if (2 * (met_.mean() - before_) > doubted_) {
      Fail(ack.now);
      return false;
    }
    added_ = 0;
    held_bandwidth_ = 0;
    is_confirming_ = ++passes_ >= (IsLarge(doubted_, state.base_rtt) ? 1 : 2);
    Restart(ack.now);
    return is_confirming_;
  }

  void Fail(Nanoseconds now) {
    added_ = 0;
    passes_ = 0;
    failed_at_ = now;
    pause_ = std::min(2 * pause_, kLongestPause);
    next_test_ = now + pause_;
    Restart(now);
  }

  /// Takes an ACK after a test that failed.
  void EndFailure(const AckEvent& ack) {
    if (ack.rtt <= 0) return;
    taken_ = std::max(taken_, ack.sample.delivery_rate);
    if (ack.now - ack.rtt < failed_at_) return;
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
    if (4 * excess < 3 * doubted_) return Fail(now);
    pause_ = kFirstPause;
    const bool is_longer = 5 * doubted_least_ > 3 * doubted_ && IsLarge(doubted_least_, base_rtt);
    if (is_longer) {
      longer_rtt_ = base_rtt + doubted_least_;
      found_bandwidth_ = std::min(taken_, rate_);
    }
    jitter_ = is_longer ? doubted_ - doubted_least_ : doubted_;
    // Two later ProbeRTTs can end it; those of before the path changed cannot.
    excesses_.fill(jitter_);
  }

  void Restart(Nanoseconds now) {
    span_ = {};
    span_start_ = now;
    watched_ = 0;
  }

  double below_;
  Bytes packet_bytes_;

  /// Of the flow so far, or since a test that failed what it had in that test.
  BitsPerSecond highest_bandwidth_ = 0;

  // What the flow watches: the present span, and the last ones.
  RttSample span_;
  Nanoseconds span_start_ = 0;
  std::array<RttSample, kSpans> spans_ = {};
  std::size_t watched_ = 0;

  // What it doubts: the excess over base_rtt of the mean RTT, and of the smallest one.
  Nanoseconds doubted_ = 0;
  Nanoseconds doubted_least_ = 0;
  Nanoseconds before_ = 0;  // the mean RTT

  // How it tests that.
  Bytes added_ = 0;
  BitsPerSecond rate_ = 0;
  BitsPerSecond held_bandwidth_ = 0;
  Nanoseconds adding_since_ = 0;
  Bytes lost_ = 0;
  BitsPerSecond taken_ = 0;  // the highest rate of its packets' delivery
  RttSample latest_;
  RttSample met_;
  Nanoseconds met_since_ = 0;
  int passes_ = 0;
  bool is_confirming_ = false;
  bool is_tested_ = false;
  Nanoseconds pause_ = kFirstPause;
  Nanoseconds failed_at_ = 0;
  Nanoseconds next_test_ = 0;

  // What it finds.
  Nanoseconds longer_rtt_ = 0;
  BitsPerSecond found_bandwidth_ = 0;
  Nanoseconds jitter_ = 0;

  // What the last ProbeRTTs had beyond base_rtt, the latest at the end, and the present one.
  std::array<Nanoseconds, 3> excesses_ = {kUnknown, kUnknown, kUnknown};
  RttSample drained_;
  Nanoseconds drained_begin_ = 0;  // 0 if there is no measurement
  Nanoseconds drained_end_ = 0;
};

}  // namespace bbrgym
