#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "baselines/cc/random.h"
#include "baselines/cc/units.h"
#include "envs/model/loss_model.h"
#include "envs/model/packet.h"
#include "envs/model/scenario.h"

namespace bbrgym {

/// A flow's path from its receiver back to its sender, the same in every engine. It loses a share `ack_loss` of the
/// packets. The others wait for the next release (`ack_aggregation_ms`), and then take as long as the RTT of that time
/// says (`rtt_schedule`), and up to `jitter_ms` longer, drawn uniformly. None overtakes the one before it.
class ReturnPath {
 public:
  ReturnPath() = default;

  /// `forward_ms` of every RTT lie elsewhere, on the way to the receiver. The receiver's clock, which schedule and
  /// releases follow, is `ahead` of the caller's.
  ReturnPath(const Flow& flow, double forward_ms, std::uint64_t flow_seed, Nanoseconds ahead = 0);

  void SetJitter(double ms);

  /// Whether all packets take equally long.
  bool IsConstant() const { return is_constant_; }

  /// Returns when a packet arrives that the receiver sends at `now`; `kNever` if it is lost. `now` never decreases.
  Nanoseconds Arrival(Nanoseconds now) { return is_constant_ ? now + delay_ : VariedArrival(now); }

 private:
  Nanoseconds VariedArrival(Nanoseconds now);

  bool is_constant_ = true;
  Nanoseconds delay_ = 0;
  Nanoseconds ahead_ = 0;
  std::vector<std::pair<Nanoseconds, Nanoseconds>> changes_;  // time and delay
  std::size_t next_change_ = 0;
  LossModel loss_;
  Nanoseconds aggregation_ = 0;
  Nanoseconds longest_jitter_ = 0;
  Nanoseconds last_arrival_ = 0;
  Random jitter_{1};
};

}  // namespace bbrgym
