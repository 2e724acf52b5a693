#pragma once

#include <cstdint>
#include <utility>

#include "baselines/cc/rtt_sample.h"
#include "baselines/cc/units.h"

namespace bbrgym {

/// How mean RTTs of 20 ms vary in some time, of 300 ms and more.
struct RttVariation {
  std::int64_t count = 0;
  double sum = 0.0;
  double squares = 0.0;
  /// Of successive ones.
  double squared_differences = 0.0;

  void Add(double mean, double last) {
    ++count;
    sum += mean;
    squares += mean * mean;
    squared_differences += (mean - last) * (mean - last);
  }

  /// Whether RTTs last for some time, and vary by a notable part of `excess`.
  ///
  /// Half of the mean squared difference is the variance if successive RTTs have nothing to do with each other (half of
  /// von Neumann's ratio is then 1), and less if they last: 0.2 if they do so for 100 ms.
  bool is_slow(Nanoseconds excess) const {
    if (count < 4) return false;
    const double mean = sum / static_cast<double>(count);
    const double variance = squares / static_cast<double>(count) - mean * mean;
    const double notable = static_cast<double>(excess) / 6.0;
    return variance > notable * notable && squared_differences / static_cast<double>(2 * count) < variance / 2.0;
  }
};

/// Measures whether RTTs keep what they have for some time. Over satellites they do, for a tenth of a second; where
/// single packets are held up, the next ones have another RTT.
class RttPersistence {
 public:
  void OnAck(Nanoseconds now, Nanoseconds rtt) {
    if (rtt <= 0) return;
    if (now - std::exchange(last_ack_, now) > kLongestGap) {
      window_ = {};
      last_mean_ = 0.0;
    }
    if (window_.count == 0) window_start_ = now;
    window_.Add(rtt);
    if (now - window_start_ < kWindow) return;
    const auto mean = static_cast<double>(std::exchange(window_, {}).mean());
    const double last = std::exchange(last_mean_, mean);
    if (last > 0.0) span_.Add(mean, last);
  }

  /// Returns how RTTs have varied since the last call.
  RttVariation EndSpan() { return std::exchange(span_, {}); }

 private:
  static constexpr Nanoseconds kWindow = 20 * kMillisecond;
  /// After a longer one successive RTTs say nothing.
  static constexpr Nanoseconds kLongestGap = 100 * kMillisecond;

  RttVariation span_;
  RttSample window_;
  Nanoseconds window_start_ = 0;
  Nanoseconds last_ack_ = 0;
  double last_mean_ = 0.0;  // of the window before; 0 if there is none
};

}  // namespace bbrgym
