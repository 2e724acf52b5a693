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
  Nanoseconds mean() const { return sum / count; }
};

}  // namespace bbrgym
