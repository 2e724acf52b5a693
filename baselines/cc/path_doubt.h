#pragma once

#include <algorithm>
#include <array>
#include <limits>

#include "baselines/cc/controller.h"
#include "baselines/cc/rtt_sample.h"
#include "baselines/cc/units.h"

namespace bbrgym {

/// Two ways in which base_rtt can be too short for the path, so that a window of one BDP starves the flow:
///   * the path has become longer: the RTT stays the same, far above base_rtt, however little the flow sends;
///   * RTTs vary without a queue (jitter, ACKs that leave the receiver together): their mean stays above base_rtt,
///     although their minimum says that the queue empties again and again.
/// The queue of a rival can look like both. So ProbeRTT tests the doubt, which other flows of agents join: their queue
/// drains, and neither a longer path nor jitter goes away.
class PathDoubt {
 public:
  /// A doubt needs a bandwidth below these shares of the highest one; with 0 there is none.
  struct Limits {
    double longer = 0.0;
    double jitter = 0.0;
  };
  struct State {
    /// base_rtt, without jitter.
    Nanoseconds base_rtt = 0;
    bool is_round_start = false;
    bool is_probe_bw = false;
    /// The packets that are sent from then on meet a drained queue; 0 where there is none.
    Nanoseconds drained_since = 0;
    /// max_bandwidth over its highest value since the last ProbeRTT, and since the flow began.
    double share_since_probe_rtt = 1.0;
    double share_of_highest = 1.0;
  };

  explicit PathDoubt(const Limits& limits) : limits_(limits) {}

  /// Takes an ACK, and returns whether ProbeRTT should test a new doubt.
  bool OnAck(const AckEvent& ack, const State& state) {
    TestJitter(ack, state);
    if (!state.is_probe_bw) {
      StartSpan(ack.now);
      emptied_spans_ = 0;
    }
    if (ack.rtt > 0) {
      round_.Add(ack.rtt);
      span_.Add(ack.rtt);
    }
    if (!state.is_round_start) return false;
    bool is_new = false;
    if (round_.count >= kMinSamples) {
      is_new = DoubtsLength(state);
      last_least_ = round_.least;
      round_ = {};
    }
    if (state.is_probe_bw && span_.count >= kMinSamples && ack.now - span_start_ >= kSpan) {
      is_new = DoubtsConstancy(state) || is_new;
      StartSpan(ack.now);
    }
    return is_new;
  }

  /// Takes the smallest RTT of a ProbeRTT that is over. Returns whether it confirms that the path has become longer.
  bool IsLonger(Nanoseconds least_rtt) {
    const bool is_tested = longer_rtt_ > 0;
    const bool is_longer = is_tested && least_rtt > longer_rtt_ - longer_rtt_ / 20;
    longer_rtt_ = 0;
    return is_longer;
  }

  /// What the mean RTT has beyond base_rtt without a queue, as confirmed by the last ProbeRTTs.
  Nanoseconds jitter() const { return jitter_; }

 private:
  // As many RTTs as HyStart++ needs (RFC 9406, section 4.3).
  static constexpr std::int64_t kMinSamples = 8;
  static constexpr int kFlatRounds = 8;
  static constexpr Nanoseconds kSpan = 300 * kMillisecond;
  static constexpr int kEmptiedSpans = 6;
  static constexpr Nanoseconds kUnknown = std::numeric_limits<Nanoseconds>::max();

  /// Less counts as none: a flow that kept it would only keep more packets in the queue than others.
  static Nanoseconds LeastJitter(Nanoseconds base_rtt) { return base_rtt / 20 + 3 * kMillisecond / 2; }
  /// More than a queue that passes for jitter.
  static bool IsLarge(Nanoseconds jitter, Nanoseconds base_rtt) { return jitter > base_rtt / 8 + 2 * kMillisecond; }

  bool DoubtsLength(const State& state) {
    const Nanoseconds tolerance = std::max(state.base_rtt / 50, kMillisecond);
    const bool is_flat = last_least_ > 0 && std::abs(round_.least - last_least_) <= tolerance;
    flat_rounds_ = is_flat ? flat_rounds_ + 1 : 0;
    const bool is_doubtful = state.is_probe_bw && flat_rounds_ >= kFlatRounds &&
                             round_.least > state.base_rtt + state.base_rtt / 4 + 4 * kMillisecond &&
                             state.share_since_probe_rtt < limits_.longer;
    if (is_doubtful) longer_rtt_ = round_.least;
    return is_doubtful;
  }

  bool DoubtsConstancy(const State& state) {
    const Nanoseconds excess = span_.mean() - state.base_rtt;
    const Nanoseconds least = span_.least - state.base_rtt;
    const bool is_emptied = 5 * least <= excess;
    // A queue that never empties is not jitter: the flow has more room than it needs. But where packets stay in order,
    // many of them wait for a few that a large jitter holds up.
    const bool is_standing = 5 * least > 3 * excess && (!IsLarge(jitter_, state.base_rtt) || 2 * least > 3 * jitter_);
    standing_spans_ = is_standing ? standing_spans_ + 1 : 0;
    if (standing_spans_ >= kEmptiedSpans) jitter_ = 0;
    least_excess_ = emptied_spans_ == 0 ? excess : std::min(excess, least_excess_);
    emptied_spans_ = is_emptied ? emptied_spans_ + 1 : 0;
    const bool is_doubtful = emptied_spans_ >= kEmptiedSpans && excess > LeastJitter(state.base_rtt) &&
                             state.share_of_highest < limits_.jitter;
    if (is_doubtful) doubted_jitter_ = least_excess_;
    return is_doubtful;
  }

  /// The last three ProbeRTTs limit the jitter to the least that their packets had, with half of it added: they are
  /// few. One alone can find a queue that other flows fill again meanwhile.
  void TestJitter(const AckEvent& ack, const State& state) {
    if (state.drained_since > 0) {
      if (drained_begin_ == 0) drained_begin_ = state.drained_since;
      drained_end_ = ack.now;
    }
    if (drained_begin_ == 0 || ack.rtt <= 0) return;
    const Nanoseconds sent = ack.now - ack.rtt;
    if (sent > drained_end_) {
      if (drained_.count > 1) {
        const Nanoseconds excess = drained_.mean() - state.base_rtt;
        if (4 * excess < 3 * doubted_jitter_) doubted_jitter_ = 0;  // less flows, less delay: it is a queue
        std::rotate(found_.begin(), found_.begin() + 1, found_.end());
        found_.back() = excess + excess / 2;
        jitter_ = std::min(std::max(jitter_, doubted_jitter_), *std::min_element(found_.begin(), found_.end()));
        if (jitter_ < LeastJitter(state.base_rtt)) jitter_ = 0;
        doubted_jitter_ = 0;
      }
      drained_ = {};
      drained_begin_ = 0;
    } else if (sent >= drained_begin_) {
      drained_.Add(ack.rtt);
    }
  }

  void StartSpan(Nanoseconds now) {
    span_ = {};
    span_start_ = now;
  }

  Limits limits_;

  // Of the present round, or of several with too few RTTs.
  RttSample round_;
  Nanoseconds last_least_ = 0;
  int flat_rounds_ = 0;
  Nanoseconds longer_rtt_ = 0;  // to be tested; 0 if there is no doubt

  RttSample span_;
  Nanoseconds span_start_ = 0;
  int emptied_spans_ = 0;
  int standing_spans_ = 0;
  Nanoseconds least_excess_ = 0;    // of these spans
  Nanoseconds doubted_jitter_ = 0;  // to be tested
  Nanoseconds jitter_ = 0;

  std::array<Nanoseconds, 3> found_ = {kUnknown, kUnknown, kUnknown};  // by the last ProbeRTTs, the latest at the end
  RttSample drained_;
  Nanoseconds drained_begin_ = 0;  // 0 if there is no measurement
  Nanoseconds drained_end_ = 0;
};

}  // namespace bbrgym
