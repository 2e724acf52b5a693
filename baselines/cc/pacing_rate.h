#pragma once

#include <algorithm>

#include "baselines/cc/controller.h"
#include "baselines/cc/units.h"

namespace bbrgym {

/// BBR's pacing rate: gain x bandwidth, less a margin. Before the first ACK it is that of the first window in the
/// handshake's RTT.
class PacingRate {
 public:
  PacingRate(const Connection& connection, double margin, double startup_gain)
      : first_cwnd_(connection.initial_cwnd),
        kept_(1.0 - margin),
        startup_gain_(startup_gain),
        has_rtt_(connection.initial_rtt > 0) {
    // Linux assumes 1 ms while it has no RTT, so the first window leaves as a burst.
    Set(RateOf(first_cwnd_, has_rtt_ ? connection.initial_rtt : kMillisecond), startup_gain, false);
  }

  /// Takes the estimates and the gain after an ACK. `min_rtt` is 0 before the first sample. If the handshake gave none,
  /// the rate begins anew with that sample.
  void OnAck(Nanoseconds min_rtt, BitsPerSecond bandwidth, double gain, bool is_pipe_full) {
    if (!has_rtt_ && min_rtt > 0) {
      has_rtt_ = true;
      value_ = 0;
      Set(RateOf(first_cwnd_, min_rtt), startup_gain_, is_pipe_full);
    }
    Set(bandwidth, gain, is_pipe_full);
  }

  /// Sets the rate. Until the pipe is full it only rises, because early samples of a few packets are too low.
  void Set(BitsPerSecond bandwidth, double gain, bool is_pipe_full) {
    const auto rate = static_cast<BitsPerSecond>(static_cast<double>(bandwidth) * gain * kept_);
    if (is_pipe_full || rate > value_) value_ = std::max(rate, BitsPerSecond{1});
  }

  BitsPerSecond value() const { return value_; }

 private:
  Bytes first_cwnd_;
  double kept_;
  double startup_gain_;
  bool has_rtt_;
  BitsPerSecond value_ = 0;
};

}  // namespace bbrgym
