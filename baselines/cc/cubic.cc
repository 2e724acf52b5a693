// CUBIC.
//
//   W_cubic(t) = C (t - K)^3 + W_max,   K = cbrt((W_max - cwnd_epoch) / C)        RFC 9438, figures 1 and 2
//   t: time in which the window limited the flow                                  sections 4.2 and 5.8
//   W_est += alpha x acked / cwnd,      alpha = 3 (1 - beta) / (1 + beta)         figure 4; Reno-friendly region
//   loss: ssthresh = beta x cwnd, W_max = cwnd (or cwnd (1 + beta) / 2)         sections 4.6 and 4.7
//   CE mark: the same with beta_ecn, and cwnd = ssthresh at once                RFC 8511, section 3.1
//
// Source: RFC 9438; slow start by RFC 9406 (HyStart++), recovery by RFC 6937 (PRR).

#include "baselines/cc/cubic.h"

#include <algorithm>
#include <cmath>

#include "baselines/cc/elementary.h"

namespace bbrgym {

void CubicParameters::Describe(ParameterReader& reader) {
  reader.Field("beta", beta, 0.01, 0.99);
  reader.Field("beta_ecn", beta_ecn, 0.01, 0.99);
  reader.Field("c", c, 0.0001, 100.0);
  reader.Field("has_fast_convergence", has_fast_convergence);
  reader.Field("has_hystart", has_hystart);
  reader.Field("is_paced", is_paced);
}

CubicController::CubicController(const Connection& connection, const CubicParameters& parameters)
    : LossBasedController(connection, {.has_hystart = parameters.has_hystart, .is_paced = parameters.is_paced}),
      parameters_(parameters) {}

Metrics CubicController::metrics() const {
  Metrics metrics = LossBasedController::metrics();
  if (curve_.w_max > 0.0) metrics.Set(Metric::w_max_packets, curve_.w_max);
  return metrics;
}

void CubicController::GrowInAvoidance(const AckEvent& ack) {
  const auto packet = static_cast<double>(packet_bytes());
  const double cwnd = static_cast<double>(cwnd_) / packet;
  const double beta = parameters_.beta;
  if (!curve_.is_in_epoch) {
    curve_.is_in_epoch = true;
    curve_.epoch_start = limited_time();
    curve_.w_est = cwnd;
    curve_.cwnd_fraction = 0.0;
    if (cwnd < curve_.w_max && !curve_.is_after_timeout) {
      curve_.k_s = Cbrt((curve_.w_max - cwnd) / parameters_.c);
    } else {
      // After a timeout (section 4.8), or if slow start ended above W_max, the curve begins in its convex part.
      curve_.k_s = 0.0;
      curve_.w_max = cwnd;
    }
    curve_.is_after_timeout = false;
  }
  const auto w_cubic = [this](double t_s) { return parameters_.c * Cube(t_s - curve_.k_s) + curve_.w_max; };
  const double t_s = static_cast<double>(limited_time() - curve_.epoch_start) / kSecond;
  const double acked = static_cast<double>(ack.bytes_acked) / packet;

  // Once W_est has reached the window before the loss, Reno grows by a whole packet per round trip (section 4.3).
  const double alpha = curve_.w_est >= curve_.cwnd_prior ? 1.0 : 3.0 * (1.0 - beta) / (1.0 + beta);
  curve_.w_est += alpha * acked / cwnd;

  double window = cwnd + curve_.cwnd_fraction;
  if (w_cubic(t_s) < curve_.w_est) {
    window = std::max(window, curve_.w_est);  // Reno-friendly region
  } else {
    // Concave and convex regions (sections 4.4, 4.5): grow towards the curve one round trip ahead, by at most half a
    // window.
    const double rtt_s = static_cast<double>(smoothed_rtt()) / kSecond;
    const double target = std::clamp(w_cubic(t_s + rtt_s), cwnd, 1.5 * cwnd);
    window += (target - cwnd) / cwnd * acked;
  }
  // The window moves in whole packets; keep the fraction for later.
  const double whole = std::floor(window);
  curve_.cwnd_fraction = window - whole;
  cwnd_ = static_cast<Bytes>(whole) * packet_bytes();
}

void CubicController::OnTimeout() {
  curve_.is_in_epoch = false;
  curve_.is_after_timeout = true;
}

Bytes CubicController::Reduce(double beta) {
  const double cwnd = static_cast<double>(cwnd_) / static_cast<double>(packet_bytes());
  curve_before_reduction_ = curve_;
  curve_.cwnd_prior = cwnd;
  curve_.w_max = cwnd < curve_.w_max && parameters_.has_fast_convergence ? cwnd * (1.0 + beta) / 2.0 : cwnd;
  curve_.is_in_epoch = curve_.is_after_timeout = false;
  return std::max(static_cast<Bytes>(beta * static_cast<double>(cwnd_)), MinCwnd());
}

}  // namespace bbrgym
