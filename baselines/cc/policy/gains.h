#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "baselines/cc/controller.h"
#include "baselines/cc/elementary.h"

namespace bbrgym {

/// What equal steps of the action for cwnd_gain are: equal ratios of it, of what it has above 1, or of the packets
/// above one BDP.
enum class CwndScale : std::uint8_t { kRatio, kPackets, kExcess };

/// With `kPackets`, an action means sinh(8 x action) packets above one BDP: from tenths of a packet to 1,490.
constexpr double kPacketsSteepness = 8.0;
/// In packets. With `kPackets`, a smaller BDP counts as this.
constexpr double kLeastBdp = 1e-3;

/// An agent's choice for each gain, in [-1, 1]; what lies outside counts as the nearest bound.
struct Action {
  double cwnd = 0.0;
  double pacing = 0.0;
};

/// The bounds of a gain; an action moves it geometrically between them. NaN stays NaN.
struct GainRange {
  double low = 0.0;
  double high = 0.0;

  double At(double action) const { return low * Pow(high / low, (action + 1.0) / 2.0); }
  /// The inverse of `At`.
  double ActionFor(double gain) const { return 2.0 * Log(gain / low) / Log(high / low) - 1.0; }
  double Clamp(double gain) const { return std::clamp(gain, low, high); }
};

/// What actions mean, for every environment and for `policy`; `bbrgym.envs.action.Action` describes it.
struct GainMap {
  GainRange cwnd;
  GainRange pacing;
  CwndScale cwnd_scale = CwndScale::kRatio;

  /// The gains that an action means for a flow with this estimate of its BDP (NaN if it has none), within their bounds.
  /// NaN stays NaN.
  Gains ToGains(const Action& action, double bdp_packets) const {
    const Action clipped = Clip(action);
    Gains gains{.cwnd = cwnd.At(clipped.cwnd), .pacing = pacing.At(clipped.pacing)};
    if (cwnd_scale == CwndScale::kExcess) gains.cwnd = 1.0 + Excess().At(clipped.cwnd);
    if (cwnd_scale == CwndScale::kPackets && !std::isnan(gains.cwnd)) {
      const double packets = Sinh(kPacketsSteepness * clipped.cwnd);
      gains.cwnd = std::isnan(bdp_packets) ? 1.0 : 1.0 + packets / std::max(bdp_packets, kLeastBdp);
    }
    return {.cwnd = cwnd.Clamp(gains.cwnd), .pacing = pacing.Clamp(gains.pacing)};
  }

  /// The inverse of `ToGains`: the action for these gains (> 0) or the nearest within the bounds.
  Action ToAction(const Gains& gains, double bdp_packets) const {
    Action action{.cwnd = cwnd.ActionFor(gains.cwnd), .pacing = pacing.ActionFor(gains.pacing)};
    if (cwnd_scale == CwndScale::kExcess) action.cwnd = Excess().ActionFor(cwnd.Clamp(gains.cwnd) - 1.0);
    if (cwnd_scale == CwndScale::kPackets) {
      const double packets = (cwnd.Clamp(gains.cwnd) - 1.0) * std::max(bdp_packets, kLeastBdp);
      action.cwnd = std::isnan(bdp_packets) ? 0.0 : Asinh(packets) / kPacketsSteepness;
    }
    return Clip(action);
  }

 private:
  GainRange Excess() const { return {.low = cwnd.low - 1.0, .high = cwnd.high - 1.0}; }
  static Action Clip(const Action& action) {
    return {.cwnd = std::clamp(action.cwnd, -1.0, 1.0), .pacing = std::clamp(action.pacing, -1.0, 1.0)};
  }
};

}  // namespace bbrgym
