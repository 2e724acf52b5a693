#pragma once

#include <algorithm>
#include <cstdint>

#include "baselines/cc/units.h"

namespace bbrgym {

/// The RTTs of some ACKs.
struct RttSample {
  Nanoseconds least = 0;
  Nanoseconds sum = 0;
  std::int64_t count = 0;

  void Add(Nanoseconds rtt) {
    least = count == 0 ? rtt : std::min(least, rtt);
    sum += rtt;
    ++count;
  }
  /// Whether there are as many as HyStart++ needs (RFC 9406, section 4.3).
  bool is_enough() const { return count >= 8; }
};

}  // namespace bbrgym
