#pragma once

#include <cstdint>

#include "baselines/cc/units.h"
#include "envs/model/loss_model.h"
#include "envs/model/packet.h"
#include "envs/model/scenario.h"

namespace bbrgym {

/// Makes some data packets late behind the link, so that others overtake them, the same in every engine: one random
/// draw per data packet that leaves the link, lost or not.
class Reordering {
 public:
  /// Delays nothing.
  Reordering() = default;

  Reordering(const Scenario& scenario, std::uint64_t link_seed)
      : draw_(scenario.reordering, link_seed ^ kStream), delay_(FromMilliseconds(scenario.reordering_ms)) {}

  /// Returns how late the packet that leaves the link is, given its payload.
  Nanoseconds NextDelay(Bytes payload) { return draw_.CanLose() && payload > 0 && draw_.IsNextLost() ? delay_ : 0; }

 private:
  // The losses use the link's seed.
  static constexpr std::uint64_t kStream = 0x72656F7264657273U;  // "reorders"

  LossModel draw_;
  Nanoseconds delay_ = 0;
};

}  // namespace bbrgym
