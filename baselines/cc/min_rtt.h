#pragma once

#include "baselines/cc/units.h"

namespace bbrgym {

/// BBR's RTprop: the smallest RTT so far. Once it is older than the window, the next RTT replaces it.
class MinRtt {
 public:
  explicit MinRtt(Nanoseconds window) : window_(window) {}

  /// Takes an ACK with its RTT (0 if it has none). Returns whether the window had expired before this ACK.
  bool OnAck(Nanoseconds now, Nanoseconds rtt) {
    const bool is_expired = IsExpired(now);
    if (rtt > 0 && (!has_sample() || rtt < value_ || is_expired)) {
      Replace(now, rtt);
    }
    return is_expired;
  }

  /// Replaces the value by a larger one, too.
  void Replace(Nanoseconds now, Nanoseconds rtt) {
    value_ = rtt;
    stamp_ = now;
  }

  /// Whether the value is older than the window.
  bool IsExpired(Nanoseconds now) const { return has_sample() && now > stamp_ + window_; }

  /// Makes the current value count as new.
  void Refresh(Nanoseconds now) { stamp_ = now; }

  bool has_sample() const { return value_ > 0; }
  /// 0 before the first sample.
  Nanoseconds value() const { return value_; }
  /// When it was measured, or last made to count as new.
  Nanoseconds stamp() const { return stamp_; }

 private:
  Nanoseconds window_;
  Nanoseconds value_ = 0;
  Nanoseconds stamp_ = 0;
};

}  // namespace bbrgym
