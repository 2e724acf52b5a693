#pragma once

#include <algorithm>

#include "baselines/cc/controller.h"
#include "baselines/cc/rtt_sample.h"
#include "baselines/cc/units.h"

namespace bbrgym {

/// A part of the window that brings a flow's backlog, the bytes that it has in the queue, to its target sooner.
///
/// A window of bandwidth x base_rtt + target has the right backlog in the end, but each round moves the flow's rate by
/// the share q = queueing delay / RTT only: where the queue is short and the path long, flows need minutes to share
/// evenly. So each round adds a part of the difference, and forgets a part of what it has added before:
///   feedback = (1 - forgotten) x feedback + g x (reachable - backlog),    g = min(0.4, forgotten^2 / (4 q))
/// Flows then converge 1 + g / forgotten times as fast. The bound 0.4 is for a lone flow, whose backlog follows its
/// window by one to one after a round; the other one is the critical damping of flows among each other.
///
/// About a packet of every window is not in flight: only whole packets are sent, and where an ACK makes room for two,
/// the second waits for its turn by the pacing rate. Jitter, and ACKs that arrive together, leave more of it unused.
/// The feedback alone makes up for g / (forgotten + g) of this: for most of it on a long path, and for little on a
/// short one, whose flow then has half the rate. So the window is larger by all of it:
///   unused = (1 - forgotten) x unused + forgotten x (cwnd - rate x RTT)
/// But one more packet of each flow makes the queue of a slow link longer. So beside a queue a flow wants less by a
/// part of this, the same part for all flows, since the queue is that of all of them:
///   reachable = target - spared,    spared = min(unused x queue / (queue + 0.2 ms), target / 2)
///
/// And the bandwidth, a maximum, is too high: a few packets more or less arrive in a round, and the maximum counts the
/// most. That is as many packets as a flow wants in the queue, and not the same number for every flow. So the window is
/// smaller by what the bandwidth has beyond the rate at which the flow sent, in the mean of as many rounds:
///   surplus = (1 - forgotten) x surplus + forgotten x (bandwidth - send_rate) x base_rtt x min(1, backlog / target)
/// A flow without a backlog has no reason to send less: its rate may have dipped, which the maximum is there to bridge.
///
/// And packets that get lost were in the window, too. With a window of what arrives the flow would send less with each
/// round. So without a backlog the window is larger by what was lost, in the mean of as many rounds:
///   made_up = (1 - forgotten) x made_up + forgotten x loss_rate x base_rtt x (1 - min(1, backlog / target))
class BacklogCorrection {
 public:
  /// A round that is over.
  struct Round {
    RttSample rtts;
    Nanoseconds base_rtt = 0;
    double bdp = 0.0;     // bytes
    double target = 0.0;  // bytes in the queue
    Bytes cwnd = 0;
  };

  /// With a memory of 0 there is no correction.
  BacklogCorrection(Bytes packet_bytes, double memory_rounds)
      : forgotten_(memory_rounds > 0.0 ? 1.0 / std::max(memory_rounds, 1.0) : 0.0),
        most_surplus_(static_cast<double>(kMostSurplusPackets * packet_bytes)),
        most_unused_(static_cast<double>(kMostUnusedPackets * packet_bytes)) {}

  /// Ends a round with the ACK that begins the next one; only some rounds count, in which the window is the limit.
  void OnRoundStart(const AckEvent& ack, const Round& round, bool counts) {
    if (counts && round.rtts.count > 0 && ack.now > begin_) Correct(ack, round);
    begin_ = ack.now;
    delivered_ = ack.delivered;
    sent_ = ack.sent;
    lost_ = Lost(ack);
  }

  /// How much larger the window is than bandwidth x base_rtt + target.
  double bytes() const { return feedback_ - surplus_ + unused_ - spared_ + made_up_; }

 private:
  static constexpr double kMaxGain = 0.4;
  /// In BDPs: where the backlog cannot reach its target, as behind a rival's queue, the gain alone decides.
  static constexpr double kMost = 0.1;
  /// A larger surplus is a dip of the rate, not the scatter of a maximum.
  static constexpr int kMostSurplusPackets = 8;
  static constexpr int kMostUnusedPackets = 2;
  /// With a queue of this length a flow spares half of what is unused.
  static constexpr double kShortQueue = 0.2 * kMillisecond;

  /// Returns what has been marked lost since the connection began.
  static Bytes Lost(const AckEvent& ack) { return ack.sent - ack.delivered - ack.in_flight; }

  void Correct(const AckEvent& ack, const Round& round) {
    if (forgotten_ == 0.0) return;
    const auto duration = static_cast<double>(ack.now - begin_);
    const double rtt = round.rtts.mean();
    const auto base_rtt = static_cast<double>(round.base_rtt);
    const double queueing = std::max(rtt - base_rtt, 0.0);
    const double delivery_rate = static_cast<double>(ack.delivered - delivered_) / duration;
    const double backlog = delivery_rate * queueing;
    const double gain =
        std::min(kMaxGain, queueing > 0.0 ? forgotten_ * forgotten_ * rtt / (4.0 * queueing) : kMaxGain);
    const double most = kMost * round.bdp;
    CountUnused(static_cast<double>(round.cwnd) - delivery_rate * rtt, round);
    const double reachable = round.target - spared_;
    feedback_ = std::clamp((1.0 - forgotten_) * feedback_ + gain * (reachable - backlog), -most, most);

    const double sent = static_cast<double>(ack.sent - sent_) / duration * base_rtt;
    const double reached = round.target > 0.0 ? std::min(1.0, backlog / round.target) : 1.0;
    surplus_ += forgotten_ * ((round.bdp - sent) * reached - surplus_);
    surplus_ = std::clamp(surplus_, 0.0, std::min(most, most_surplus_));

    const double lost = static_cast<double>(Lost(ack) - lost_) / duration * base_rtt;
    made_up_ += forgotten_ * (lost * (1.0 - reached) - made_up_);
    made_up_ = std::clamp(made_up_, 0.0, most);
  }

  /// Takes the part of the last round's window that was not in flight.
  void CountUnused(double unused, const Round& round) {
    unused_ += forgotten_ * (std::clamp(unused, -most_unused_, most_unused_) - unused_);
    const auto queue = static_cast<double>(std::max<Nanoseconds>(round.rtts.least - round.base_rtt, 0));
    queue_ += forgotten_ * (queue - queue_);
    spared_ = std::clamp(unused_ * queue_ / (queue_ + kShortQueue), 0.0, round.target / 2);
  }

  double forgotten_;
  double most_surplus_;
  double most_unused_;
  double feedback_ = 0.0;
  double surplus_ = 0.0;
  double unused_ = 0.0;
  double queue_ = 0.0;  // in ns
  double spared_ = 0.0;
  double made_up_ = 0.0;

  // When the present round began.
  Nanoseconds begin_ = 0;
  Bytes delivered_ = 0;
  Bytes sent_ = 0;
  Bytes lost_ = 0;
};

}  // namespace bbrgym
