#pragma once

#include "baselines/cc/units.h"

namespace bbrgym {

/// Whether the congestion window limits a flow. A flow that paces, or whose ACKs come in clumps, fills its window at a
/// few ACKs of a round trip only. So a full window counts for the round trip: until what was in flight then is
/// delivered, as in Linux (tcp_cwnd_validate).
class WindowUsage {
 public:
  /// Takes an ACK, with what was in flight and had been delivered before it, and whether that filled the window.
  bool OnAck(bool is_full, Bytes in_flight, Bytes delivered) {
    if (is_full) end_ = delivered + in_flight;
    return is_full || delivered < end_;
  }

 private:
  Bytes end_ = 0;  // what it is once everything that was in flight in the full window is delivered
};

}  // namespace bbrgym
