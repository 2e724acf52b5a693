#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "baselines/cc/random.h"

namespace bbrgym {

/// Decides which packets the link loses at random, the same in every engine: one random draw per packet.
///
/// Without `burst_packets`, each packet is lost independently with probability `loss`. With it, losses come in bursts:
/// Gilbert's model (Bell System Technical Journal 39(5), 1960) has a good state, in which nothing is lost, and a bad
/// state, in which everything is. Before each packet the state may change: from bad to good with probability
/// r = 1 / burst_packets, so that a burst has `burst_packets` packets on average, and from good to bad with
/// p = r loss / (1 - loss), so that the share p / (p + r) = loss of all packets is lost. p is a probability while
/// loss <= burst_packets / (burst_packets + 1).
class LossModel {
 public:
  /// Loses nothing.
  LossModel() = default;

  LossModel(double loss, std::optional<double> burst_packets, std::uint64_t seed)
      : loss_(Threshold(loss)), is_bursty_(burst_packets.has_value()), random_(seed) {
    if (!is_bursty_ || loss_ == 0) return;
    const double to_good = 1.0 / *burst_packets;
    to_good_ = Threshold(to_good);
    to_bad_ = Threshold(to_good * loss / (1.0 - loss));
    is_bad_ = IsDrawnBelow(loss_);  // the stationary distribution
  }

  bool CanLose() const { return loss_ > 0; }

  bool IsNextLost() {
    if (!is_bursty_) return IsDrawnBelow(loss_);
    is_bad_ = is_bad_ ? !IsDrawnBelow(to_good_) : IsDrawnBelow(to_bad_);
    return is_bad_;
  }

 private:
  static std::uint64_t Threshold(double probability) {
    constexpr double kAll = 18446744073709551615.0;
    return probability < 1.0 ? static_cast<std::uint64_t>(probability * kAll)
                             : std::numeric_limits<std::uint64_t>::max();
  }

  bool IsDrawnBelow(std::uint64_t threshold) { return random_.Next() < threshold; }

  std::uint64_t loss_ = 0;
  std::uint64_t to_good_ = 0;
  std::uint64_t to_bad_ = 0;
  bool is_bursty_ = false;
  bool is_bad_ = false;
  Random random_{1};
};

}  // namespace bbrgym
