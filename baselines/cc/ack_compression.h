#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "baselines/cc/controller.h"
#include "baselines/cc/rtt_sample.h"
#include "baselines/cc/units.h"

namespace bbrgym {

/// Measures by how much packets and ACKs are held up, as on Wi-Fi: they then arrive together, although the packets were
/// sent one after another (ACK compression; Zhang, Shenker and Clark, SIGCOMM 1991). A bottleneck does not do that: it
/// lets packets through one by one.
///
/// Of ACKs that arrive together, the last one has the smallest RTT. What the others have beyond it is time for which
/// they were held up, and not a queue. So was the last one, for a time that nobody can see: the measure is a lower
/// bound.
class AckCompression {
 public:
  void OnAck(const AckEvent& ack) {
    if (ack.rtt <= 0) return;
    const Nanoseconds sent = ack.now - ack.rtt;
    const Nanoseconds arrival_gap = ack.now - arrived_;
    const Nanoseconds gap = sent - sent_;
    const bool is_near = 0 <= gap && gap < kNear;
    if (is_near ? arrival_gap > kNear : kTogether * arrival_gap > gap) EndCluster();
    if (cluster_.count == 0 || !is_near) {
      is_compressed_ = cluster_.count > 0;
      arrived_ = ack.now;
      sent_ = sent;
    }
    cluster_.Add(ack.rtt);
    if (ack.now - span_begin_ >= kSpan) EndSpan(ack.now);
  }

  /// By how much, in the mean of all packets; 0 if it is noise. It is that of the third lowest of the last six spans: a
  /// path that becomes shorter, or a burst of others, compresses ACKs once.
  Nanoseconds delay() const { return delay_; }

 private:
  /// ACKs arrive together if the time between them is shorter by this factor than between their packets.
  static constexpr Nanoseconds kTogether = 4;
  /// Packets that are sent within this time are near one another: the time between their ACKs is noise.
  static constexpr Nanoseconds kNear = kMillisecond / 2;
  static constexpr Nanoseconds kSpan = 300 * kMillisecond;
  static constexpr std::size_t kSpans = 6;
  static constexpr std::size_t kThirdLowest = 2;
  static constexpr std::int64_t kFewestPackets = 4;
  static constexpr Nanoseconds kNoise = kMillisecond / 20;

  void EndCluster() {
    if (is_compressed_) held_up_ += cluster_.sum - cluster_.count * cluster_.least;
    packets_ += cluster_.count;
    cluster_ = {};
  }

  /// A span with too few packets goes on.
  void EndSpan(Nanoseconds now) {
    span_begin_ = now;
    if (packets_ < kFewestPackets) return;
    std::rotate(delays_.begin(), delays_.begin() + 1, delays_.end());
    delays_.back() = std::exchange(held_up_, 0) / std::exchange(packets_, 0);
    std::array<Nanoseconds, kSpans> sorted = delays_;
    std::nth_element(sorted.begin(), sorted.begin() + kThirdLowest, sorted.end());
    delay_ = sorted[kThirdLowest] > kNoise ? sorted[kThirdLowest] : 0;
  }

  RttSample cluster_;  // of ACKs that arrive together
  bool is_compressed_ = false;
  // When the latest of its packets that was not near another one was sent, and when its ACK arrived.
  Nanoseconds sent_ = 0;
  Nanoseconds arrived_ = 0;

  // Of the present span, and of the last ones.
  Nanoseconds span_begin_ = 0;
  Nanoseconds held_up_ = 0;
  std::int64_t packets_ = 0;
  std::array<Nanoseconds, kSpans> delays_ = {};
  Nanoseconds delay_ = 0;
};

}  // namespace bbrgym
