#pragma once

#include <algorithm>
#include <cstdint>

#include "baselines/cc/random.h"
#include "baselines/cc/units.h"

namespace bbrgym {

/// The jitter of a flow's way back, the same in every engine: each packet takes longer by up to `jitter_ms`, uniformly,
/// but none overtakes the one before.
class AckJitter {
 public:
  AckJitter() = default;  // none

  AckJitter(double jitter_ms, std::uint64_t flow_seed)
      : longest_(static_cast<Nanoseconds>(jitter_ms * 1e6)), random_(flow_seed ^ kStream) {}

  /// When a packet arrives that leaves at `now` (no earlier than the one before) and takes `delay` without jitter.
  Nanoseconds Arrival(Nanoseconds now, Nanoseconds delay) {
    if (longest_ <= 0) return now + delay;
    const auto extra = static_cast<Nanoseconds>(random_.Below(static_cast<std::uint64_t>(longest_) + 1));
    last_arrival_ = std::max(last_arrival_, now + delay + extra);
    return last_arrival_;
  }

 private:
  // The flow's controller has the flow's seed; this is another, so that neither's draws follow from the other's.
  static constexpr std::uint64_t kStream = 0x6A69747465724D73U;  // "jitterMs"

  Nanoseconds longest_ = 0;
  Nanoseconds last_arrival_ = 0;
  Random random_{1};
};

}  // namespace bbrgym
