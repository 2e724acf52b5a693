#pragma once

#include <cstdint>

#include "baselines/cc/random.h"
#include "baselines/cc/units.h"
#include "envs/model/scenario.h"

namespace bbrgym {

/// When the application of a flow with `app_rate_mbps` writes its messages, each of a full packet. It begins with an on
/// period; times in off periods do not count for its rate.
class AppSource {
 public:
  /// `begin`: when the connection is open. `seed`: of the flow. Sources that differ in `begin` alone write at the same
  /// times after it.
  AppSource(const Flow& flow, Bytes packet_bytes, std::uint64_t seed, Nanoseconds begin);

  /// When the next message is written.
  Nanoseconds next() const { return begin_ + static_cast<Nanoseconds>(period_begin_ + offset_); }
  void Advance();

 private:
  // The flow's controller and its jitter use the flow's seed; a different one here keeps the sequences independent.
  static constexpr std::uint64_t kStream = 0x6170704F6E4F6666U;  // "appOnOff"

  double Length(double mean);

  // In ns; fractions of one would add up.
  double interval_;
  double mean_on_;
  double mean_off_;
  bool is_exponential_;
  Random random_;
  Nanoseconds begin_;
  double period_begin_ = 0.0;  // of the on period with the next message, after `begin_`
  double on_;                  // its length
  double offset_ = 0.0;        // of the message in it
};

}  // namespace bbrgym
