#pragma once

#include <algorithm>

#include "baselines/cc/units.h"
#include "envs/model/packet.h"

namespace bbrgym {

/// How long after one round trip a packet is lost, once packets that were taken for lost have arrived: RFC 8985,
/// section 6.2, step 4, as in Linux's tcp_rack_update_reo_wnd. It grows by a quarter of the shortest RTT per round trip
/// in which one arrives, and is back at a quarter after 16 recoveries without.
class ReorderingWindow {
 public:
  /// Whether it counts: until then, packet and time thresholds are those of RFC 9002.
  bool IsOpen() const { return quarters_ > 0; }

  /// `next_number`: of the next packet.
  void OnLateArrival(PacketNumber largest_acked, PacketNumber next_number) {
    if (IsOpen() && largest_acked < round_end_) return;
    round_end_ = next_number;
    recoveries_left_ = kRecoveries;
    quarters_ = std::clamp(quarters_ + 1, 2, kMostQuarters);
  }

  /// A recovery was over because everything had been delivered.
  void OnRecoveryEnd() {
    if (IsOpen() && --recoveries_left_ <= 0) quarters_ = 1;
  }

  Nanoseconds Length(Nanoseconds min_rtt, Nanoseconds smoothed_rtt) const {
    return std::min(quarters_ * (min_rtt / 4), smoothed_rtt);
  }

 private:
  static constexpr int kRecoveries = 16;
  static constexpr int kMostQuarters = 255;

  PacketNumber round_end_ = 0;
  int recoveries_left_ = 0;
  int quarters_ = 0;
};

}  // namespace bbrgym
