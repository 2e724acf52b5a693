#pragma once

#include <utility>

#include "baselines/cc/controller.h"
#include "baselines/cc/rtt_sample.h"
#include "baselines/cc/units.h"

namespace bbrgym {

/// Notices when RTTs become longer from one packet to the next, and stay so. A queue does not do that: it grows packet
/// by packet, for as long as more arrive than leave.
class RttStep {
 public:
  /// Takes an ACK, and returns whether RTTs have become longer, and for a moment have been steady at about that height.
  bool OnAck(const AckEvent& ack) {
    if (ack.rtt <= 0) return false;
    const Nanoseconds sent = ack.now - ack.rtt;
    const Nanoseconds gap = sent - std::exchange(last_sent_, sent);
    if (is_step() && 2 * (ack.rtt - before_) < rise_) Forget();
    if (!is_step() && IsJump(ack.rtt, gap)) {
      before_ = Recent().most;
      rise_ = ack.rtt - before_;
      is_steady_since_ = true;
      history_ = {};
      last_history_ = {};
      span_ = {};
    }
    if (history_.count == 0) history_start_ = ack.now;
    history_.Add(ack.rtt);
    if (IsOver(history_, ack.now - history_start_, kHistory)) last_history_ = std::exchange(history_, {});
    if (span_.count == 0) span_start_ = ack.now;
    span_.Add(ack.rtt);
    if (!IsOver(span_, ack.now - span_start_, kSpan)) return false;
    steady_ = std::exchange(span_, {});
    const bool is_steady = 8 * (steady_.mean() - steady_.least) <= rise_;
    is_steady_since_ = is_steady_since_ && is_steady;
    return is_step() && is_steady && 2 * (steady_.least - before_) <= 3 * rise_;
  }

  /// Whether RTTs have become longer.
  bool is_step() const { return rise_ > 0; }
  /// Whether they have been steady ever since. If not, more than the path's length has changed: the link's rate, too.
  bool is_steady_since() const { return is_steady_since_; }
  /// The steady RTTs, when `OnAck` returns true.
  const RttSample& steady() const { return steady_; }
  void Forget() { rise_ = 0; }

 private:
  static constexpr Nanoseconds kSpan = 150 * kMillisecond;
  static constexpr Nanoseconds kHistory = 300 * kMillisecond;

  static bool IsOver(const RttSample& sample, Nanoseconds duration, Nanoseconds least_duration) {
    return sample.is_enough() && duration >= least_duration;
  }

  /// The RTTs of the last 300 to 600 ms.
  RttSample Recent() const {
    RttSample recent = last_history_;
    if (history_.count > 0) recent.Add(history_);
    return recent;
  }

  /// By more than they varied before, and than a queue grows while a few packets are sent.
  bool IsJump(Nanoseconds rtt, Nanoseconds gap) const {
    if (last_history_.count == 0) return false;
    const RttSample recent = Recent();
    const Nanoseconds rise = rtt - recent.most;
    return rise > recent.most / 128 + kMillisecond && rise > recent.most - recent.least && 2 * rise > 3 * gap;
  }

  Nanoseconds last_sent_ = 0;
  RttSample history_;
  Nanoseconds history_start_ = 0;
  RttSample last_history_;

  // Of the step: the highest RTT before it, and how much longer the first one is.
  Nanoseconds before_ = 0;
  Nanoseconds rise_ = 0;
  bool is_steady_since_ = false;

  RttSample span_;
  Nanoseconds span_start_ = 0;
  RttSample steady_;
};

}  // namespace bbrgym
