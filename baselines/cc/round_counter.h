#pragma once

#include <cstdint>

#include "baselines/cc/units.h"

namespace bbrgym {

/// Counts packet-timed round trips: a round ends when a packet is delivered that was sent after the round began
/// (draft-cardwell-iccrg-bbr-congestion-control-00, section 4.1.1.3).
class RoundCounter {
 public:
  /// Takes an ACK of a packet. `prior_delivered` bytes had been delivered when the packet was sent, `delivered` have
  /// been now. Returns whether a round begins.
  bool OnDelivered(Bytes prior_delivered, Bytes delivered) {
    if (prior_delivered < next_round_delivered_) return false;
    next_round_delivered_ = delivered;
    ++count_;
    return true;
  }

  /// Extends the current round until everything sent so far is delivered.
  void Restart(Bytes delivered) { next_round_delivered_ = delivered; }

  std::int64_t count() const { return count_; }

 private:
  Bytes next_round_delivered_ = 0;
  std::int64_t count_ = 0;
};

}  // namespace bbrgym
