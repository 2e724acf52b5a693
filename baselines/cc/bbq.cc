// BBQ.
//
//   RTT > (1 + beta) min_rtt: the probing phase (gain 1.25) lasts min(alpha, min_rtt); else as in BBR.   alpha = 3 ms
//
// Source: Ma et al., "Fairness of Congestion-Based Congestion Control" (arXiv 1706.09115), whose rule and constants we
// know from other papers. Ours: a shortened probe ends by time alone, since BBR's second condition (1.25 BDP in flight)
// would defeat the limit. The RTT is the latest one, compared on every ACK of the phase.

#include "baselines/cc/bbq.h"

#include <algorithm>

namespace bbrgym {

void BbqParameters::Describe(ParameterReader& reader) {
  BbrParameters::Describe(reader);
  reader.Field("probe_ms", probe_ms, 0.001, 10'000.0);
  reader.Field("queue_threshold", queue_threshold, 0.0, 100.0);
}

BbqController::BbqController(const Connection& connection, const BbqParameters& parameters)
    : BbrController(connection, parameters), short_probe_(parameters) {}

void BbqController::Observe(const AckEvent& ack) {
  if (ack.rtt > 0) rtt_ = ack.rtt;
}

bool BbqController::IsPhaseOver(const AckEvent& ack) const {
  const bool has_queue =
      static_cast<double>(rtt_) > (1.0 + short_probe_.queue_threshold) * static_cast<double>(min_rtt());
  if (gains().pacing <= 1.0 || !has_queue) return BbrController::IsPhaseOver(ack);
  const auto limit = static_cast<Nanoseconds>(short_probe_.probe_ms * kMillisecond);
  return ack.now - phase_start() > std::min(limit, min_rtt());
}

}  // namespace bbrgym
