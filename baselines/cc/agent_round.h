#pragma once

#include "baselines/cc/controller.h"
#include "baselines/cc/rtt_sample.h"
#include "baselines/cc/units.h"

namespace bbrgym {

/// A round of an agent's flow that is over.
struct AgentRound {
  RttSample rtts;
  Nanoseconds base_rtt = 0;
  double bdp = 0.0;     // bytes
  double target = 0.0;  // bytes in the queue
  Bytes cwnd = 0;
  bool is_compressed = false;  // its ACKs
};

}  // namespace bbrgym
