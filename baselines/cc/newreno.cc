// NewReno.
//
//   a window acknowledged: cwnd += 1 packet        loss: ssthresh = max(cwnd / 2, 2 packets), cwnd -> ssthresh by PRR
//                                                  CE mark: cwnd = ssthresh = max(0.8 cwnd, 2 packets)
//
// Source: RFC 5681 (with byte counting, section 3.1, as RFC 3465), RFC 6582's recovery over SACK (RFC 6675) by RFC
// 6937; RFC 3168 and RFC 8511 for marks. The window stands for the FlightSize: it grows only while it limits the flow.

#include "baselines/cc/newreno.h"

#include <algorithm>

namespace bbrgym {

void NewRenoParameters::Describe(ParameterReader& reader) {
  reader.Field("beta", beta, 0.01, 0.99);
  reader.Field("beta_ecn", beta_ecn, 0.01, 0.99);
  reader.Field("has_hystart", has_hystart);
  reader.Field("is_paced", is_paced);
}

NewRenoController::NewRenoController(const Connection& connection, const NewRenoParameters& parameters)
    : LossBasedController(connection, {.has_hystart = parameters.has_hystart, .is_paced = parameters.is_paced}),
      parameters_(parameters) {}

void NewRenoController::GrowInAvoidance(const AckEvent& ack) {
  acked_towards_growth_ += ack.bytes_acked;
  while (acked_towards_growth_ >= cwnd_) {
    acked_towards_growth_ -= cwnd_;
    cwnd_ += packet_bytes();
  }
}

Bytes NewRenoController::Reduce(double beta) {
  acked_towards_growth_ = 0;
  return std::max(static_cast<Bytes>(beta * static_cast<double>(cwnd_)), MinCwnd());
}

}  // namespace bbrgym
