#pragma once

#include <algorithm>
#include <limits>

#include "baselines/cc/controller.h"
#include "baselines/cc/units.h"
#include "baselines/cc/windowed_max.h"

namespace bbrgym {

/// Bounds the bandwidth of a flow behind a queue of more than a path's length by what has lately arrived.
///
/// When a link becomes slower, the window is still that of the faster link. It fills the buffer, and the round trips
/// after which max_bandwidth forgets the faster link are now the longest: a second each where 430 packets wait for a
/// link of 5 Mbit/s. The rates that are measured fall sooner, since they are those of the slower link after one path's
/// length.
class SlowerLink {
 public:
  /// Takes an ACK; where the rate comes and goes, there is no bound, since it will soon be higher again.
  void OnAck(const AckEvent& ack, Nanoseconds base_rtt, bool comes_and_goes) {
    if (ack.rtt <= 0) return;
    recent_.SetWindow(std::max(kRecent, 2 * base_rtt));
    recent_.Update(ack.now, ack.sample.delivery_rate);
    is_slower_ = ack.rtt > 2 * base_rtt + 2 * kMillisecond && !comes_and_goes;
  }

  BitsPerSecond most() const { return is_slower_ ? recent_.Best() : std::numeric_limits<BitsPerSecond>::max(); }

 private:
  static constexpr Nanoseconds kRecent = 600 * kMillisecond;

  WindowedMax<BitsPerSecond> recent_{kRecent};
  bool is_slower_ = false;
};

}  // namespace bbrgym
