#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "baselines/cc/round_counter.h"
#include "baselines/cc/units.h"

namespace bbrgym {

/// HyStart++ (RFC 9406): leaves slow start when the smallest RTT of a round rises, after some rounds of slower growth
/// that would reveal a spurious rise.
class HyStart {
 public:
  /// Takes an ACK in slow start. `prior_delivered` separates rounds (see RoundCounter). Returns how many of the
  /// acknowledged bytes may be added to the window.
  Bytes OnAck(Nanoseconds rtt, Bytes acked, Bytes prior_delivered, Bytes delivered) {
    if (rounds_.OnDelivered(prior_delivered, delivered)) StartRound();
    if (rtt > 0) {
      round_min_rtt_ = std::min(round_min_rtt_, rtt);
      ++round_samples_;
    }
    const bool has_round = round_samples_ >= kMinSamples && last_round_min_rtt_ != kNone;
    if (!is_conservative_) {
      if (has_round) {
        const Nanoseconds rise = std::clamp(last_round_min_rtt_ / kMinRttDivisor, kMinRttRise, kMaxRttRise);
        if (round_min_rtt_ >= last_round_min_rtt_ + rise) {
          is_conservative_ = true;
          baseline_min_rtt_ = round_min_rtt_;
          conservative_rounds_ = 0;
        }
      }
    } else if (round_samples_ >= kMinSamples && round_min_rtt_ < baseline_min_rtt_) {
      is_conservative_ = false;  // the rise was jitter: back to slow start
    }
    return is_conservative_ ? acked / kGrowthDivisor : acked;
  }

  /// Whether slow start is over: the conservative rounds have confirmed the rise.
  bool IsDone() const { return is_conservative_ && conservative_rounds_ >= kConservativeRounds; }

 private:
  // RFC 9406, section 4.3: recommended values.
  static constexpr Nanoseconds kMinRttRise = 4 * kMillisecond;
  static constexpr Nanoseconds kMaxRttRise = 16 * kMillisecond;
  static constexpr std::int64_t kMinRttDivisor = 8;
  static constexpr std::int64_t kMinSamples = 8;
  static constexpr std::int64_t kGrowthDivisor = 4;
  static constexpr std::int64_t kConservativeRounds = 5;
  static constexpr Nanoseconds kNone = std::numeric_limits<Nanoseconds>::max();

  void StartRound() {
    last_round_min_rtt_ = round_min_rtt_;
    round_min_rtt_ = kNone;
    round_samples_ = 0;
    if (is_conservative_) ++conservative_rounds_;
  }

  RoundCounter rounds_;
  Nanoseconds round_min_rtt_ = kNone;
  Nanoseconds last_round_min_rtt_ = kNone;
  Nanoseconds baseline_min_rtt_ = kNone;
  std::int64_t round_samples_ = 0;
  std::int64_t conservative_rounds_ = 0;
  bool is_conservative_ = false;
};

}  // namespace bbrgym
