#pragma once

#include <algorithm>

#include "baselines/cc/units.h"

namespace bbrgym {

/// BBR's bandwidth since version 2: the maximum of the delivery rates in this probing cycle and in the last one
/// (draft-ietf-ccwg-bbr-06, section 5.5.6).
class TwoCycleMax {
 public:
  void Update(BitsPerSecond rate) { this_cycle_ = std::max(this_cycle_, rate); }

  /// Begins a cycle. One without a sample does not count: the one before it is remembered.
  void Advance() {
    if (this_cycle_ == 0) return;
    last_cycle_ = this_cycle_;
    this_cycle_ = 0;
  }

  /// 0 before the first sample.
  BitsPerSecond Best() const { return std::max(last_cycle_, this_cycle_); }

 private:
  BitsPerSecond last_cycle_ = 0;
  BitsPerSecond this_cycle_ = 0;
};

}  // namespace bbrgym
