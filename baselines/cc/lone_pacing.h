#pragma once

#include <algorithm>
#include <cmath>
#include <utility>

#include "baselines/cc/agent_round.h"
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
  explicit LonePacing(Bytes packet_bytes) : packet_bytes_(static_cast<double>(packet_bytes)) {}

  void OnAck(const AckEvent& ack) {
    is_draining_ = ack.now < drains_until_;
    const auto bytes = static_cast<double>(ack.delivered - train_delivered_);
    const Nanoseconds time = ack.now - train_begin_;
    if (bytes < kTrainPackets * packet_bytes_ || time < kShortestTrain) return;
    if (train_begin_ > 0) link_rate_ = std::max(link_rate_, ExactRateOf(bytes, time));
    train_begin_ = ack.now;
    train_delivered_ = ack.delivered;
  }

  /// Ends a round with the ACK that begins the next one; only some rounds count, in which the agent has its gains.
  void OnRoundStart(const AckEvent& ack, const AgentRound& round, bool counts) {
    if (!counts || ack.sample.is_app_limited || round.rtts.count == 0) {
      Restart();
    } else if (is_pacing_) {
      Pace(ack, round);
    } else {
      Measure(ack, round);
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

  void Restart() {
    is_pacing_ = false;
    rounds_ = 0;
  }

  void Measure(const AckEvent& ack, const AgentRound& round) {
    if (++rounds_ <= kRoundsBefore) {
      begin_ = ack.now;
      delivered_ = ack.delivered;
      return;
    }
    const auto bytes = static_cast<double>(ack.delivered - delivered_);
    const Nanoseconds time = ack.now - begin_;
    if (time < kSpan || rounds_ < kRoundsBefore + kMeasuredRounds || bytes < kMeasuredPackets * packet_bytes_) return;
    const double rate = ExactRateOf(bytes, time);
    const double difference = std::abs(rate - std::exchange(measured_, rate));
    const bool is_same = difference < std::max(kTolerance * rate, ExactRateOf(1.5 * packet_bytes_, time));
    paced_for_ = is_same && is_alone_ ? std::min(2 * paced_for_, kLongest) : kShortest;
    is_alone_ = is_same && rate > kAlone * link_rate_ && round.bdp <= kMostBdpPackets * packet_bytes_ &&
                round.target <= kMostTargetPackets * packet_bytes_;
    Restart();
    if (is_alone_) Begin(ack.now, rate, round.rtts.mean() - round.base_rtt);
  }

  void Begin(Nanoseconds now, double rate, Nanoseconds queue) {
    is_pacing_ = true;
    rate_ = kShare * rate;
    begin_ = now;
    drains_until_ = now + static_cast<Nanoseconds>(static_cast<double>(queue) / (1.0 - kDrain));
    first_ = span_ = {};
  }

  void Pace(const AckEvent& ack, const AgentRound& round) {
    if (ack.now < drains_until_ + round.base_rtt) return;
    if (IsFaster(ack.now, round.rtts)) {
      is_alone_ = false;
      measured_ = 0.0;
      return Restart();
    }
    const double queue = static_cast<double>(round.rtts.mean() - round.base_rtt) / static_cast<double>(round.base_rtt);
    // A second flow would keep its target.
    if (2.0 * queue * round.bdp > round.target || ack.now - begin_ > paced_for_) Restart();
  }

  /// Whether the link has become faster: the RTT is shorter by a fifth of the time that a packet takes.
  bool IsFaster(Nanoseconds now, const RttSample& rtts) {
    if (span_.count == 0) span_begin_ = now;
    span_.Add(rtts);
    if (!span_.is_enough() || now - span_begin_ < kSpan) return false;
    const RttSample span = std::exchange(span_, {});
    if (first_.count == 0) first_ = span;
    return 5 * static_cast<double>(first_.mean() - span.mean()) > packet_bytes_ * 8e9 / rate_;
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
