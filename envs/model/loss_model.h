#pragma once

#include <cstdint>
#include <limits>

#include "baselines/cc/random.h"
#include "baselines/cc/units.h"
#include "envs/model/scenario.h"

namespace bbrgym {

/// Decides which packets the link loses at random, the same in every engine.
///
/// Without bursts, each packet is lost independently with probability `loss`: one random draw per packet. Bursts follow
/// Gilbert's model (Bell System Technical Journal 39(5), 1960), which has a good state, in which nothing is lost, and a
/// bad state, in which everything is.
///
/// With `loss_burst_packets` the state may change before each packet: from bad to good with probability
/// r = 1 / loss_burst_packets, so that a burst has that many packets on average, and from good to bad with
/// p = r loss / (1 - loss), so that the share p / (p + r) = loss of all packets is lost. p is a probability while
/// loss <= loss_burst_packets / (loss_burst_packets + 1). It takes one random draw per packet, too. Only packets end a
/// burst. A lone sender that has lost all that it sent has probe timeouts. Each sends a packet and doubles the next
/// wait, up to 2^10 times. The burst outlasts k of them with probability (1 - r)^k. Where 2 (1 - r) > 1, which is
/// above two packets, the longest waits thus decide the mean stall: hundreds of first timeouts for five packets.
///
/// With `loss_burst_ms` the states last exponentially distributed times, whether packets come or not: bad ones
/// `loss_burst_ms` on average, and good ones so long that the share `loss` of the time is bad.
class LossModel {
 public:
  /// Loses nothing.
  LossModel() = default;

  /// Independent losses.
  LossModel(double loss, std::uint64_t seed) : loss_(Threshold(loss)), random_(seed) {}

  /// The losses of a scenario's link.
  LossModel(const Scenario& scenario, std::uint64_t seed) : LossModel(scenario.loss, seed) {
    if (loss_ == 0 || !(scenario.loss_burst_packets || scenario.loss_burst_ms)) return;
    if (scenario.loss_burst_packets) {
      const double to_good = 1.0 / *scenario.loss_burst_packets;
      to_good_ = Threshold(to_good);
      to_bad_ = Threshold(to_good * scenario.loss / (1.0 - scenario.loss));
    } else {
      mean_bad_ns_ = *scenario.loss_burst_ms * 1e6;
      mean_good_ns_ = mean_bad_ns_ * (1.0 - scenario.loss) / scenario.loss;
    }
    is_bad_ = IsDrawnBelow(loss_);  // the stationary distribution
    if (scenario.loss_burst_ms) state_end_ns_ = DrawLength();
  }

  /// Sets the probability of independent losses; bursts keep theirs.
  void SetLoss(double loss) {
    if (to_good_ == 0 && mean_bad_ns_ == 0.0) loss_ = Threshold(loss);
  }

  bool CanLose() const { return loss_ > 0; }

  /// `now` never decreases; only bursts that end by time need it.
  bool IsNextLost(Nanoseconds now = 0) {
    if (to_good_ > 0) {
      is_bad_ = is_bad_ ? !IsDrawnBelow(to_good_) : IsDrawnBelow(to_bad_);
      return is_bad_;
    }
    if (mean_bad_ns_ > 0.0) {
      for (; state_end_ns_ <= static_cast<double>(now); state_end_ns_ += DrawLength()) is_bad_ = !is_bad_;
      return is_bad_;
    }
    return IsDrawnBelow(loss_);
  }

 private:
  static std::uint64_t Threshold(double probability) {
    constexpr double kAll = 18446744073709551615.0;
    return probability < 1.0 ? static_cast<std::uint64_t>(probability * kAll)
                             : std::numeric_limits<std::uint64_t>::max();
  }

  bool IsDrawnBelow(std::uint64_t threshold) { return random_.Next() < threshold; }
  double DrawLength() { return random_.Exponential(is_bad_ ? mean_bad_ns_ : mean_good_ns_); }

  std::uint64_t loss_ = 0;
  std::uint64_t to_good_ = 0;  // above 0 if bursts end by packets
  std::uint64_t to_bad_ = 0;
  double mean_bad_ns_ = 0.0;  // above 0 if bursts end by time
  double mean_good_ns_ = 0.0;
  double state_end_ns_ = 0.0;
  bool is_bad_ = false;
  Random random_{1};
};

}  // namespace bbrgym
