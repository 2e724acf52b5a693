#pragma once

#include "baselines/cc/controller.h"
#include "baselines/cc/round_counter.h"
#include "baselines/cc/units.h"

namespace bbrgym {

/// How long BBR's ProbeRTT lasts: a time and a round after no more than its window is in flight
/// (draft-ietf-ccwg-bbr-06, section 5.3.4.3).
class ProbeRtt {
 public:
  explicit ProbeRtt(double length_ms) : length_(static_cast<Nanoseconds>(length_ms * kMillisecond)) {}

  void Start() { end_ = 0; }

  /// Takes an ACK in ProbeRTT, whose window is `cwnd`. Returns whether ProbeRTT is over.
  bool OnAck(const AckEvent& ack, Bytes cwnd, RoundCounter& rounds, bool is_round_start) {
    if (end_ > 0) {
      is_round_over_ |= is_round_start;
      return is_round_over_ && IsTimeOver(ack.now);
    }
    if (ack.in_flight <= cwnd) {
      end_ = ack.now + length_;
      is_round_over_ = false;
      rounds.Restart(ack.delivered);
    }
    return false;
  }

  bool IsTimeOver(Nanoseconds now) const { return end_ > 0 && now > end_; }

 private:
  Nanoseconds length_;
  Nanoseconds end_ = 0;  // of the time; 0 until no more than the window is in flight
  bool is_round_over_ = false;
};

}  // namespace bbrgym
