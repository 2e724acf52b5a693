#pragma once

#include <algorithm>
#include <cstdint>

#include "baselines/cc/random.h"
#include "baselines/cc/units.h"

namespace bbrgym {

/// The jitter of a flow's return path, the same in every engine. Each packet takes up to `jitter_ms` longer, drawn
/// uniformly, and none overtakes the one before it.
class AckJitter {
 public:
  /// No jitter.
  AckJitter() = default;

  AckJitter(double jitter_ms, std::uint64_t flow_seed)
      : longest_(static_cast<Nanoseconds>(jitter_ms * 1e6)), random_(flow_seed ^ kStream) {}

  /// Returns when a packet arrives that leaves at `now` and takes `delay` without jitter. `now` never decreases.
  Nanoseconds Arrival(Nanoseconds now, Nanoseconds delay) {
    if (longest_ <= 0) return now + delay;
    const auto extra = static_cast<Nanoseconds>(random_.Below(static_cast<std::uint64_t>(longest_) + 1));
    last_arrival_ = std::max(last_arrival_, now + delay + extra);
    return last_arrival_;
  }

 private:
  // The flow's controller uses the flow's seed; a different one here keeps the two sequences independent.
  static constexpr std::uint64_t kStream = 0x6A69747465724D73U;  // "jitterMs"

  Nanoseconds longest_ = 0;
  Nanoseconds last_arrival_ = 0;
  Random random_{1};
};

}  // namespace bbrgym
