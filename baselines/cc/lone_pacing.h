#pragma once

#include <algorithm>
#include <cmath>
#include <utility>

#include "baselines/cc/controller.h"
#include "baselines/cc/rtt_sample.h"
#include "baselines/cc/units.h"

namespace bbrgym {

/// Says whether a flow has the link alone, and how fast it should send then: just below the rate of the link, so that
/// there is no queue. A flow whose window is the limit has to keep a few packets in the queue, or it would not notice
/// that there is room for more. On a slow link they are most of the delay.
///
/// In between the flow measures at which rate its packets arrive while it keeps a queue. If two results in a row are
/// the same, and nearly the highest rate at which a few packets ever arrived one after another, nobody else sends.
class LonePacing {
 public:
  /// The round that is over.
  struct State {
    bool is_probe_bw = false;
    RttSample rtts;
    Nanoseconds base_rtt = 0;
    double bdp = 0.0;     // bytes
    double target = 0.0;  // bytes in the queue
  };

  explicit LonePacing(Bytes packet_bytes) : packet_bytes_(static_cast<double>(packet_bytes)) {}

  void OnAck(const AckEvent& ack) {
    is_draining_ = ack.now < drains_until_;
    const auto bytes = static_cast<double>(ack.delivered - train_delivered_);
    const Nanoseconds time = ack.now - train_begin_;
    if (bytes < kTrainPackets * packet_bytes_ || time < kShortestTrain) return;
    if (train_begin_ > 0) link_rate_ = std::max(link_rate_, RateOf(bytes, time));
    train_begin_ = ack.now;
    train_delivered_ = ack.delivered;
  }

  void OnRoundStart(const AckEvent& ack, const State& state) {
    if (!state.is_probe_bw || ack.sample.is_app_limited || state.rtts.count == 0) {
      Restart();
    } else if (is_pacing_) {
      Pace(ack, state);
    } else {
      Measure(ack, state);
    }
  }

  /// Whether the flow should send at `rate`, in bits per second.
  bool is_pacing() const { return is_pacing_; }
  double rate() const { return is_draining_ ? kDrain * rate_ : rate_; }
  /// Whether the last measurement found the flow alone.
  bool is_alone() const { return is_alone_; }

 private:
  /// Packets that arrive one after another, at the rate of the link if the flow sent them in a burst…
  static constexpr int kTrainPackets = 4;
  /// …and for how long at least, so that a jitter of the ACKs counts little.
  static constexpr Nanoseconds kShortestTrain = 3 * kMillisecond;
  /// A flow with this share of the highest rate of a train is alone, if its rate stays the same within this tolerance
  /// or one and a half packets.
  static constexpr double kAlone = 0.8;
  static constexpr double kTolerance = 0.01;
  /// With a larger BDP a few packets in the queue hardly matter, and who wants more there has another reason.
  static constexpr int kMostBdpPackets = 100;
  static constexpr int kMostTargetPackets = 8;
  /// Before a measurement the window fills the queue for so many rounds; it lasts as many rounds and packets.
  static constexpr int kRoundsBefore = 2;
  static constexpr int kMeasuredRounds = 4;
  static constexpr int kMeasuredPackets = 100;
  /// For how long the flow measures at least, and compares RTTs.
  static constexpr Nanoseconds kSpan = 300 * kMillisecond;
  /// Of the measured rate: how fast the flow sends, and until the queue of the measurement has drained.
  static constexpr double kShare = 0.995;
  static constexpr double kDrain = 0.75;
  /// How long it takes until the next measurement, at first and at last.
  static constexpr Nanoseconds kShortest = kSecond;
  static constexpr Nanoseconds kLongest = 8 * kSecond;

  /// In bits per second.
  static double RateOf(double bytes, Nanoseconds time) { return 8.0 * bytes * kSecond / static_cast<double>(time); }

  void Restart() {
    is_pacing_ = false;
    rounds_ = 0;
  }

  void Measure(const AckEvent& ack, const State& state) {
    if (++rounds_ <= kRoundsBefore) {
      begin_ = ack.now;
      delivered_ = ack.delivered;
      return;
    }
    const auto bytes = static_cast<double>(ack.delivered - delivered_);
    const Nanoseconds time = ack.now - begin_;
    if (time < kSpan || rounds_ < kRoundsBefore + kMeasuredRounds || bytes < kMeasuredPackets * packet_bytes_) return;
    const double rate = RateOf(bytes, time);
    const double difference = std::abs(rate - std::exchange(measured_, rate));
    const bool is_same = difference < std::max(kTolerance * rate, RateOf(1.5 * packet_bytes_, time));
    paced_for_ = is_same && is_alone_ ? std::min(2 * paced_for_, kLongest) : kShortest;
    is_alone_ = is_same && rate > kAlone * link_rate_ && state.bdp <= kMostBdpPackets * packet_bytes_ &&
                state.target <= kMostTargetPackets * packet_bytes_;
    Restart();
    if (is_alone_) Begin(ack.now, rate, state.rtts.mean() - state.base_rtt);
  }

  void Begin(Nanoseconds now, double rate, Nanoseconds queue) {
    is_pacing_ = true;
    rate_ = kShare * rate;
    begin_ = now;
    drains_until_ = now + static_cast<Nanoseconds>(static_cast<double>(queue) / (1.0 - kDrain));
    first_ = span_ = {};
  }

  void Pace(const AckEvent& ack, const State& state) {
    if (ack.now < drains_until_ + state.base_rtt) return;
    if (IsFaster(ack.now, state.rtts)) {
      is_alone_ = false;
      measured_ = 0.0;
      return Restart();
    }
    const double queue = static_cast<double>(state.rtts.mean() - state.base_rtt) / static_cast<double>(state.base_rtt);
    // A second flow would keep its target.
    if (2.0 * queue * state.bdp > state.target || ack.now - begin_ > paced_for_) Restart();
  }

  /// Whether the link has become faster: the RTT is shorter by a fifth of the time that a packet takes.
  bool IsFaster(Nanoseconds now, const RttSample& rtts) {
    if (span_.count == 0) span_begin_ = now;
    span_.Add(rtts);
    if (!span_.is_enough() || now - span_begin_ < kSpan) return false;
    const RttSample span = std::exchange(span_, {});
    if (first_.count == 0) first_ = span;
    return 5 * static_cast<double>(first_.mean() - span.mean()) > 8.0 * packet_bytes_ * kSecond / rate_;
  }

  double packet_bytes_;

  // The highest rate of a train, and when and after how many bytes the present one began.
  double link_rate_ = 0.0;
  Nanoseconds train_begin_ = 0;
  Bytes train_delivered_ = 0;

  // When and after how many bytes the measurement began, and its last result.
  Nanoseconds begin_ = 0;  // or the pacing
  Bytes delivered_ = 0;
  int rounds_ = 0;
  double measured_ = 0.0;

  bool is_alone_ = false;
  bool is_pacing_ = false;
  bool is_draining_ = false;
  double rate_ = 0.0;
  Nanoseconds paced_for_ = kShortest;
  Nanoseconds drains_until_ = 0;

  // RTTs of the first span without a queue, and of the present one.
  RttSample first_;
  RttSample span_;
  Nanoseconds span_begin_ = 0;
};

}  // namespace bbrgym
