#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "baselines/cc/loss_based.h"
#include "baselines/cc/parameters.h"
#include "baselines/cc/windowed_min.h"

namespace bbrgym {

struct LedbatParameters {
  /// TARGET: the queueing delay that the flow aims at; at most 100 ms (RFC 6817, section 2.5). LEDBAT++ uses 60.
  double target_ms = 100.0;
  /// GAIN: packets per round trip by which the window grows without a queue; at most 1 (section 2.5).
  double gain = 1.0;
  /// ALLOWED_INCREASE: how many packets the window may exceed the flight size by; should be 1 (section 2.5).
  std::int64_t allowed_increase_packets = 1;
  /// BASE_HISTORY: minutes for which the smallest RTT counts as that of the empty path (section 2.5).
  double base_history_min = 10.0;
  /// The window after a loss as a share of the one before (section 2.4.2).
  double beta = 0.5;
  /// Slow start, which RFC 6817 does not have, with HyStart++.
  bool has_slow_start = false;

  void Describe(ParameterReader& reader);
};

/// LEDBAT (RFC 6817): a background flow that keeps a fixed queueing delay and yields to others;
/// docs/algorithms/ledbat.md.
class LedbatController final : public LossBasedController {
 public:
  LedbatController(const Connection& connection, const LedbatParameters& parameters);

  Metrics metrics() const override;

 private:
  /// CURRENT_FILTER: the minimum of so many RTTs counts. RFC 6817 leaves the filter open, and asks for four samples or
  /// more; ns-3's TcpLedbat takes four, too.
  static constexpr std::size_t kCurrentDelays = 4;

  void Observe(const AckEvent& ack) override;
  /// The window moves in `Observe`, with the flow limited by it or not.
  void GrowInAvoidance(const AckEvent& /*ack*/) override {}
  Bytes ReducedThreshold() override;

  /// Negative without RTT samples.
  Nanoseconds QueueingDelay() const;

  LedbatParameters parameters_;
  WindowedMin<Nanoseconds> base_rtt_;
  std::array<Nanoseconds, kCurrentDelays> rtts_{};
  std::int64_t rtt_count_ = 0;
  /// What the window has not yet moved by, in bytes.
  double cwnd_fraction_ = 0.0;
};

}  // namespace bbrgym
