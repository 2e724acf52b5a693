#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "baselines/cc/units.h"

namespace bbrgym {

/// How BBR raises its upper bound while it probes, since version 2: by 1, 2, 4, … packets per round, spread over the
/// round: slow at first, then as fast as slow start (draft-ietf-ccwg-bbr-06, section 5.3.3.5).
class ProbeGrowth {
 public:
  /// Begins a probe whose first round raises the bound by 2^`rounds` packets.
  void Restart(std::int64_t rounds = 0) {
    rounds_ = rounds;
    acked_ = 0;
  }

  /// Begins a round of the probe; each packet takes this share of the window.
  void StartRound(Bytes cwnd, Bytes packet_bytes) {
    const std::int64_t packets = std::int64_t{1} << rounds_;
    rounds_ = std::min<std::int64_t>(rounds_ + 1, 30);
    acked_per_packet_ = std::max(cwnd / packets, packet_bytes);
  }

  /// Returns by how many packets the bound grows.
  std::int64_t OnAck(Bytes acked) {
    acked_ += acked;
    const std::int64_t packets = acked_ / acked_per_packet_;
    acked_ -= packets * acked_per_packet_;
    return packets;
  }

  /// Forgets what was acknowledged since the bound last grew.
  void ForgetAcked() { acked_ = 0; }

  /// Ends the probe.
  void Stop() { acked_per_packet_ = kNoGrowth; }

 private:
  static constexpr Bytes kNoGrowth = std::numeric_limits<Bytes>::max();

  std::int64_t rounds_ = 0;
  Bytes acked_ = 0;
  Bytes acked_per_packet_ = kNoGrowth;
};

}  // namespace bbrgym
