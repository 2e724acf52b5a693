#pragma once

#include <algorithm>

#include "baselines/cc/units.h"

namespace bbrgym {

/// Proportional rate reduction (RFC 6937, with the slow-start reduction bound): spreads the reduction of the window
/// over the round of recovery.
class ProportionalRateReduction {
 public:
  /// Begins a recovery with `in_flight` bytes outstanding and `sent` bytes sent so far.
  void Start(Bytes in_flight, Bytes sent) {
    in_flight_at_start_ = std::max(in_flight, Bytes{1});
    sent_at_start_ = sent;
    delivered_ = 0;
  }

  /// Returns the window after an ACK in a recovery towards `ssthresh`.
  Bytes Cwnd(Bytes acked, Bytes in_flight, Bytes sent, Bytes ssthresh, Bytes packet_bytes) {
    delivered_ += acked;
    const Bytes sent_in_recovery = sent - sent_at_start_;
    Bytes may_send = 0;
    if (in_flight > ssthresh) {
      // Ceiling of delivered x ssthresh / in flight at the start: the share of the delivered bytes that may be
      // replaced.
      const auto share = static_cast<double>(ssthresh) / static_cast<double>(in_flight_at_start_);
      may_send = static_cast<Bytes>(static_cast<double>(delivered_) * share + 0.999999) - sent_in_recovery;
    } else {
      const Bytes limit = std::max(delivered_ - sent_in_recovery, acked) + packet_bytes;
      may_send = std::min(ssthresh - in_flight, limit);
    }
    return std::max(in_flight + std::max(may_send, Bytes{0}), packet_bytes);
  }

 private:
  Bytes in_flight_at_start_ = 1;
  Bytes sent_at_start_ = 0;
  Bytes delivered_ = 0;
};

}  // namespace bbrgym
