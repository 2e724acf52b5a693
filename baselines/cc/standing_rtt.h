#pragma once

#include <algorithm>
#include <utility>

#include "baselines/cc/units.h"

namespace bbrgym {

/// The smallest RTT of the last ProbeRTT, in which flows of agents empty the queue together: where it is longer than
/// the path's, rivals fill the buffer. Rivals that go by losses leave it empty from time to time. A flow that then
/// loses its bandwidth once more goes by the ProbeRTT before the last one, too, until it has it back.
class StandingRtt {
 public:
  /// Takes the share of its bandwidth below which the flow has lost it; 0: it never has.
  explicit StandingRtt(double recalls_below) : recalls_below_(recalls_below) {}

  /// Takes an RTT in ProbeRTT, or 0.
  void OnProbeRtt(Nanoseconds rtt) {
    if (rtt > 0 && (probing_ == 0 || rtt < probing_)) probing_ = rtt;
  }

  /// Returns the smallest RTT of a ProbeRTT that has just ended, otherwise 0.
  Nanoseconds OnProbeRttEnd() {
    if (probing_ == 0) return 0;
    before_last_ = std::exchange(last_, std::exchange(probing_, 0));
    highest_bandwidth_ = 0;
    recalls_ = false;
    return last_;
  }

  void OnProbeBw(BitsPerSecond bandwidth) {
    highest_bandwidth_ = std::max(highest_bandwidth_, bandwidth);
    const bool has_lost_it = static_cast<double>(bandwidth) < recalls_below_ * static_cast<double>(highest_bandwidth_);
    recalls_ = has_lost_it || (recalls_ && bandwidth < highest_bandwidth_);
  }

  /// 0 before the first ProbeRTT.
  Nanoseconds value() const { return recalls_ ? std::max(last_, before_last_) : last_; }

 private:
  double recalls_below_;
  Nanoseconds probing_ = 0;  // the smallest RTT so far; 0 if there is no ProbeRTT
  Nanoseconds last_ = 0;
  Nanoseconds before_last_ = 0;
  BitsPerSecond highest_bandwidth_ = 0;  // since the last ProbeRTT
  bool recalls_ = false;
};

}  // namespace bbrgym
