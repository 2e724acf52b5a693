#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "baselines/cc/controller.h"
#include "baselines/cc/units.h"

namespace bbrgym {

/// Notices that the rate at which packets arrive changes all the time, as over a cellular link. Newcomers and flows
/// that leave change it, too, but not again and again.
class RateChanges {
 public:
  explicit RateChanges(Bytes packet_bytes) : packet_bytes_(static_cast<double>(packet_bytes)) {}

  void OnAck(const AckEvent& ack, bool is_probe_bw) {
    if (!is_probe_bw) {
      begin_ = 0;
      return;
    }
    if (begin_ > 0 && ack.now - begin_ < kSpan) return;
    if (begin_ > 0) EndSpan(static_cast<double>(ack.delivered - delivered_) / static_cast<double>(ack.now - begin_));
    begin_ = ack.now;
    delivered_ = ack.delivered;
    if (changes_.back() == Change::kUp) grown_at_ = ack.now;
  }

  /// Whether the rate has grown in the last six seconds.
  bool has_grown_lately(Nanoseconds now) const { return grown_at_ > 0 && now - grown_at_ < kLately; }
  /// Whether the rate has changed in half of the last spans, and not in one direction alone.
  bool are_frequent() const {
    const int up = Count(Change::kUp);
    const int down = Count(Change::kDown);
    return 2 * (up + down) >= kSpans && up > 0 && down > 0;
  }

 private:
  static constexpr Nanoseconds kSpan = 300 * kMillisecond;
  static constexpr int kSpans = 12;
  static constexpr Nanoseconds kLately = 6 * kSecond;
  /// Less is how a rate scatters: this share, and this many packets in a span.
  static constexpr double kScatter = 0.15;
  static constexpr int kScatterPackets = 4;

  enum class Change { kNone, kUp, kDown };

  int Count(Change change) const { return static_cast<int>(std::count(changes_.begin(), changes_.end(), change)); }

  /// Takes the rate of a span in bytes per nanosecond.
  void EndSpan(double rate) {
    const double before = std::exchange(rate_, rate);
    if (before == 0.0) return;
    const double scatter = std::max(kScatter * std::max(rate, before), kScatterPackets * packet_bytes_ / kSpan);
    std::rotate(changes_.begin(), changes_.begin() + 1, changes_.end());
    changes_.back() = std::abs(rate - before) <= scatter ? Change::kNone : rate > before ? Change::kUp : Change::kDown;
  }

  double packet_bytes_;
  Nanoseconds begin_ = 0;  // of the present span; 0 if there is none
  Bytes delivered_ = 0;
  double rate_ = 0.0;
  Nanoseconds grown_at_ = 0;  // 0: not yet
  std::array<Change, kSpans> changes_ = {};
};

}  // namespace bbrgym
