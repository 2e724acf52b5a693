#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "baselines/cc/units.h"

namespace bbrgym {

/// The RTTs of some ACKs, one after the other.
struct RttSample {
  Nanoseconds least = 0;
  Nanoseconds most = 0;
  Nanoseconds last = 0;
  Nanoseconds sum = 0;
  /// The sum of the differences between neighbours, without signs.
  Nanoseconds differences = 0;
  std::int64_t count = 0;

  void Add(Nanoseconds rtt) {
    if (count == 0) least = most = last = rtt;
    least = std::min(least, rtt);
    most = std::max(most, rtt);
    sum += rtt;
    differences += std::abs(rtt - last);
    last = rtt;
    ++count;
  }
  double mean() const { return static_cast<double>(sum) / static_cast<double>(count); }
  /// The mean difference between neighbours; at least two are needed.
  double jitter() const { return static_cast<double>(differences) / static_cast<double>(count - 1); }
  /// Whether there are as many as HyStart++ needs (RFC 9406, section 4.3).
  bool is_enough() const { return count >= 8; }
};

}  // namespace bbrgym
