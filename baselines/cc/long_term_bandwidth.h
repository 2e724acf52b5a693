#pragma once

#include <cstdint>
#include <cstdlib>

#include "baselines/cc/units.h"

namespace bbrgym {

/// Estimates the rate of a token-bucket policer: that of two intervals in a row with much loss and about the same
/// delivery rate. It then replaces the maximum, which saved tokens have raised, for some rounds (Linux tcp_bbr.c,
/// bbr_lt_bw_sampling).
class LongTermBandwidth {
 public:
  /// The state of the connection at an ACK with a rate sample, or at a timeout.
  struct Event {
    /// Time of the last delivery.
    Nanoseconds now = 0;
    /// Totals of the connection.
    Bytes delivered = 0;
    Bytes lost = 0;
    bool has_loss = false;
    bool is_app_limited = false;
    bool is_round_start = false;
    /// Rounds of use count in ProbeBW only.
    bool is_probe_bw = false;
  };

  void Update(const Event& event) {
    if (is_used_) {
      if (event.is_probe_bw && event.is_round_start && ++rounds_ >= kUsedRounds) Reset(event);
      return;
    }
    if (!is_sampling_) {
      // The first loss shows that the bucket is empty; before it, saved tokens raise the rate.
      if (!event.has_loss) return;
      StartInterval(event);
      is_sampling_ = true;
    }
    if (event.is_app_limited) {
      Reset(event);
      return;
    }
    if (event.is_round_start) ++rounds_;
    if (rounds_ < kLeastRounds) return;
    if (rounds_ > 4 * kLeastRounds) {
      Reset(event);
      return;
    }
    // An interval begins and ends with a loss, that is with an empty bucket.
    if (!event.has_loss) return;
    const Bytes delivered = event.delivered - start_.delivered;
    const Bytes lost = event.lost - start_.lost;
    const Nanoseconds interval = event.now - start_.now;
    if (delivered <= 0 || lost * 256 < delivered * kLossPer256 || interval < kMillisecond) return;
    EndInterval(RateOf(delivered, interval), event);
  }

  /// Whether `value` replaces the maximum.
  bool is_used() const { return is_used_; }
  /// 0 before the first interval has ended.
  BitsPerSecond value() const { return bandwidth_; }

 private:
  // Linux tcp_bbr.c: bbr_lt_intvl_min_rtts, bbr_lt_loss_thresh, bbr_lt_bw_ratio, bbr_lt_bw_diff, bbr_lt_bw_max_rtts.
  static constexpr std::int64_t kLeastRounds = 4;
  static constexpr Bytes kLossPer256 = 50;                   // lost for 256 delivered: 20 %
  static constexpr BitsPerSecond kLargestRatio = 8;          // rate over a difference that counts as none
  static constexpr BitsPerSecond kLargestDifference = 4000;  // a difference that always counts as none
  static constexpr std::int64_t kUsedRounds = 48;

  void StartInterval(const Event& event) {
    start_ = event;
    rounds_ = 0;
  }

  void EndInterval(BitsPerSecond bandwidth, const Event& event) {
    if (bandwidth_ > 0) {
      const BitsPerSecond difference = std::abs(bandwidth - bandwidth_);
      if (difference * kLargestRatio <= bandwidth_ || difference <= kLargestDifference) {
        bandwidth_ = (bandwidth + bandwidth_) / 2;
        is_used_ = true;
        rounds_ = 0;
        return;
      }
    }
    bandwidth_ = bandwidth;
    StartInterval(event);
  }

  void Reset(const Event& event) {
    bandwidth_ = 0;
    is_used_ = is_sampling_ = false;
    StartInterval(event);
  }

  Event start_;
  std::int64_t rounds_ = 0;
  BitsPerSecond bandwidth_ = 0;
  bool is_sampling_ = false;
  bool is_used_ = false;
};

}  // namespace bbrgym
