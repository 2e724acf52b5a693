#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "baselines/cc/units.h"

namespace bbrgym {

/// A burst of ACKs: the bytes acknowledged beyond bandwidth x time since it began.
class AckBurst {
 public:
  /// Returns the excess with this ACK, at most the window.
  Bytes OnAck(Nanoseconds now, Bytes acked, BitsPerSecond bandwidth, Bytes cwnd) {
    auto expected = static_cast<Bytes>(BytesIn(bandwidth, now - epoch_start_));
    if (epoch_acked_ <= expected) {
      // The ACKs no longer exceed the bandwidth: a new epoch begins.
      epoch_start_ = now;
      epoch_acked_ = 0;
      expected = 0;
    }
    epoch_acked_ += acked;
    return std::min(epoch_acked_ - expected, cwnd);
  }

  /// Lets the next ACK begin a new epoch: after an idle time, the first ACKs are no burst.
  void Restart() { epoch_acked_ = 0; }

 private:
  Nanoseconds epoch_start_ = 0;
  Bytes epoch_acked_ = 0;
};

/// Measures ACK aggregation: the largest burst of the last 5 to 10 rounds (Linux 5.1 and later, tcp_bbr.c
/// bbr_update_ack_aggregation).
class ExtraAcked {
 public:
  void OnAck(Nanoseconds now, Bytes acked, BitsPerSecond bandwidth, Bytes cwnd, bool is_round_start) {
    if (is_round_start && ++rounds_ >= kWindowRounds) {
      rounds_ = 0;
      slot_ = 1 - slot_;
      most_[slot_] = 0;
    }
    most_[slot_] = std::max(most_[slot_], burst_.OnAck(now, acked, bandwidth, cwnd));
  }

  /// See `AckBurst`.
  void Restart() { burst_.Restart(); }

  /// Returns what the window gets for such bursts: at most 100 ms worth (Linux bbr_extra_acked_max_us).
  Bytes Allowance(double gain, BitsPerSecond bandwidth) const {
    return static_cast<Bytes>(std::min(gain * static_cast<double>(Most()), BytesIn(bandwidth, 100 * kMillisecond)));
  }

  Bytes Most() const { return std::max(most_[0], most_[1]); }

 private:
  static constexpr int kWindowRounds = 5;  // one slot; two slots make a window of 5 to 10 rounds

  AckBurst burst_;
  int rounds_ = 0;
  std::size_t slot_ = 0;
  std::array<Bytes, 2> most_{};
};

}  // namespace bbrgym
