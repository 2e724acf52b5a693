#pragma once

#include <algorithm>
#include <cstdint>

#include "baselines/cc/random.h"
#include "baselines/cc/units.h"

namespace bbrgym {

/// When BBR probes for bandwidth again, since version 2: after a partly random time, so that flows do not probe
/// together, or after the rounds in which Reno would regain the window, if that is earlier
/// (draft-ietf-ccwg-bbr-06, section 5.3.3.8).
class ProbeTimer {
 public:
  /// Begins to wait, from 0 or 1 rounds on, at random.
  void Start(Nanoseconds now, double wait_s, double random_wait_s, Random& random) {
    start_ = now;
    rounds_ = static_cast<std::int64_t>(random.Below(2));
    const auto random_wait = static_cast<std::uint64_t>(random_wait_s * kSecond) + 1;
    wait_ = static_cast<Nanoseconds>(wait_s * kSecond) + static_cast<Nanoseconds>(random.Below(random_wait));
  }

  void OnRound() { ++rounds_; }

  /// Args: packets in flight, for each of which Reno needs a round, and the most rounds to wait.
  bool IsOver(Nanoseconds now, std::int64_t packets, std::int64_t most_rounds) const {
    return now > start_ + wait_ || rounds_ >= std::min(packets, most_rounds);
  }

 private:
  Nanoseconds start_ = 0;
  Nanoseconds wait_ = 0;
  std::int64_t rounds_ = 0;
};

}  // namespace bbrgym
