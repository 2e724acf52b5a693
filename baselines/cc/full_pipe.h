#pragma once

#include <cstdint>

#include "baselines/cc/units.h"

namespace bbrgym {

/// Detects that Startup has filled the pipe: the bandwidth has not grown by the factor `growth` in `rounds` rounds
/// (draft-cardwell-iccrg-bbr-congestion-control-00, section 4.3.2.2).
class FullPipe {
 public:
  FullPipe(double growth, std::int64_t rounds) : growth_(growth), rounds_(rounds) {}

  /// To be called once per round, unless it was application-limited.
  void OnRound(BitsPerSecond bandwidth) {
    if (is_full_ || TakeGrowth(bandwidth)) return;
    is_full_ = ++rounds_without_growth_ >= rounds_;
  }

  /// Compares with a bandwidth within a round; returns whether it has grown. Linux does so since BBRv3.
  bool TakeGrowth(BitsPerSecond bandwidth) {
    if (static_cast<double>(bandwidth) < static_cast<double>(best_) * growth_) return false;
    best_ = bandwidth;
    rounds_without_growth_ = 0;
    return true;
  }

  /// Begins again, from a bandwidth that is known already (draft-ietf-ccwg-bbr-06, sections 5.3.1.2 and 5.3.3.9).
  void Restart(BitsPerSecond bandwidth = 0) {
    best_ = bandwidth;
    rounds_without_growth_ = 0;
    is_full_ = false;
  }

  /// Forgets the bandwidth that it compares with, but not that the pipe was full (as Linux does on a timeout).
  void ForgetBandwidth() { best_ = 0; }

  /// Forgets also the rounds without growth (as Linux does once a recovery turns out to be spurious).
  void ForgetGrowth() {
    best_ = 0;
    rounds_without_growth_ = 0;
  }

  /// Ends Startup for another reason.
  void Fill() { is_full_ = true; }

  bool is_full() const { return is_full_; }

 private:
  double growth_;
  std::int64_t rounds_;
  BitsPerSecond best_ = 0;
  std::int64_t rounds_without_growth_ = 0;
  bool is_full_ = false;
};

}  // namespace bbrgym
