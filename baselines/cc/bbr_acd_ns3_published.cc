// BBR-ACD as its published ns-3 simulation ran it.
//
//   on every ACK in recovery: cwnd = max(cwnd, in flight + acked); cwnd = max(min(cwnd / 2, BDP + 3 packets), 4
//   packets) and the window's gain is 1 until the next Startup, Drain or ProbeBW is entered
//
// Source: imtiaztee/BBR-ACD-complete-NS3-implementation, tcp-bbr-acd.cc, where ProbeCongestion() ends with an
// unconditional `probeCongestion = false` and the limit is applied whenever the socket is in recovery. Kept to
// reproduce the figures of the article; bbr-acd is the algorithm.

#include "baselines/cc/bbr_acd_ns3_published.h"

#include <algorithm>

namespace bbrgym {

BbrAcdNs3PublishedController::BbrAcdNs3PublishedController(const Connection& connection,
                                                           const BbrAcdNs3PublishedParameters& parameters)
    : BbrController(connection, parameters) {}

void BbrAcdNs3PublishedController::Observe(const AckEvent& /*ack*/) {
  if (mode() != last_mode_ && mode() != Mode::kProbeRtt) is_window_one_bdp_ = false;
  last_mode_ = mode();
}

Gains BbrAcdNs3PublishedController::ChooseGains() const {
  Gains gains = BbrController::ChooseGains();
  if (is_window_one_bdp_) gains.cwnd = 1.0;
  return gains;
}

bool BbrAcdNs3PublishedController::RecoverOrRestoreCwnd(const AckEvent& ack) {
  if (recovery() != Recovery::kRecovery) return BbrController::RecoverOrRestoreCwnd(ack);
  is_window_one_bdp_ = true;
  cwnd_ = std::max(cwnd_, ack.in_flight + ack.bytes_acked);
  cwnd_ = std::max(std::min(cwnd_ / 2, InflightTarget(1.0, max_bandwidth())), MinCwnd());
  return true;
}

}  // namespace bbrgym
