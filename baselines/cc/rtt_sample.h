#pragma once

#include <algorithm>
#include <cstdint>

#include "baselines/cc/units.h"

namespace bbrgym {

/// The RTTs of some ACKs.
struct RttSample {
  Nanoseconds least = 0;
  Nanoseconds most = 0;
  Nanoseconds sum = 0;
  std::int64_t count = 0;

  void Add(Nanoseconds rtt) { Add({rtt, rtt, rtt, 1}); }
  void Add(const RttSample& other) {
    least = count == 0 ? other.least : std::min(least, other.least);
    most = std::max(most, other.most);
    sum += other.sum;
    count += other.count;
  }
  Nanoseconds mean() const { return sum / count; }
  /// Whether there are as many as HyStart++ needs (RFC 9406, section 4.3).
  bool is_enough() const { return count >= 8; }
};

}  // namespace bbrgym
