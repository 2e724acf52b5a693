#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "baselines/cc/controller.h"

namespace bbrgym {

/// What equal steps of the action for cwnd_gain are: equal ratios of it, or of the packets above one BDP.
enum class CwndScale : std::uint8_t { kRatio, kPackets };

/// With `kPackets`, an action means sinh(8 x action) packets above one BDP: from tenths of a packet to 1,490.
constexpr double kPacketsSteepness = 8.0;
/// In packets. With `kPackets`, a smaller BDP counts as this.
constexpr double kLeastBdp = 1e-3;

/// An agent's choice for each gain, in [-1, 1].
struct Action {
  float cwnd = 0.0F;
  float pacing = 0.0F;
};

/// The bounds of a gain; an action moves it geometrically between them.
struct GainRange {
  double low = 0.0;
  double high = 0.0;

  double At(double action) const { return low * std::pow(high / low, (action + 1.0) / 2.0); }
  /// NaN stays NaN.
  double Clamp(double gain) const { return std::clamp(gain, low, high); }
};

/// What actions mean: the same mapping as `bbrgym.envs.action.Action`. There NumPy computes it, whose vectorised pow
/// and sinh may differ from those of the C library in the last bit.
struct GainMap {
  GainRange cwnd;
  GainRange pacing;
  CwndScale cwnd_scale = CwndScale::kRatio;

  /// The gains that an action means for a flow with this estimate of its BDP (NaN if it has none), within their bounds.
  /// NaN stays NaN.
  Gains ToGains(const Action& action, double bdp_packets) const {
    Gains gains{.cwnd = cwnd.At(action.cwnd), .pacing = pacing.At(action.pacing)};
    if (cwnd_scale == CwndScale::kPackets && !std::isnan(gains.cwnd)) {
      const double packets = std::sinh(kPacketsSteepness * static_cast<double>(action.cwnd));
      gains.cwnd = std::isnan(bdp_packets) ? 1.0 : 1.0 + packets / std::max(bdp_packets, kLeastBdp);
    }
    return {.cwnd = cwnd.Clamp(gains.cwnd), .pacing = pacing.Clamp(gains.pacing)};
  }
};

}  // namespace bbrgym
