#pragma once

#include <algorithm>

#include "baselines/cc/units.h"
#include "envs/model/scenario.h"

namespace bbrgym {

/// A token bucket that drops what exceeds it, and queues nothing (Flach et al., "An Internet-Wide Analysis of Traffic
/// Policing", SIGCOMM 2016, section 2), the same in every engine. A token is a byte on the wire; the bucket begins
/// full.
class Policer {
 public:
  /// Admits everything.
  Policer() = default;

  explicit Policer(const Scenario& scenario) : is_active_(scenario.policer_mbps.has_value()) {
    if (!is_active_) return;
    bytes_per_ns_ = *scenario.policer_mbps / 8e3;
    tokens_ = burst_ = static_cast<double>(scenario.policer_burst_bytes);
  }

  bool IsActive() const { return is_active_; }

  /// Returns whether a packet may pass that arrives at `now`, which never decreases, and takes its tokens if so.
  bool Admits(Nanoseconds now, Bytes bytes) {
    tokens_ = std::min(burst_, tokens_ + static_cast<double>(now - last_) * bytes_per_ns_);
    last_ = now;
    if (tokens_ < static_cast<double>(bytes)) return false;
    tokens_ -= static_cast<double>(bytes);
    return true;
  }

 private:
  bool is_active_ = false;
  double bytes_per_ns_ = 0.0;
  double burst_ = 0.0;
  double tokens_ = 0.0;
  Nanoseconds last_ = 0;
};

}  // namespace bbrgym
