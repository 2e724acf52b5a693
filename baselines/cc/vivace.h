#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "baselines/cc/controller.h"
#include "baselines/cc/parameters.h"
#include "baselines/cc/random.h"

namespace bbrgym {

struct VivaceParameters {
  /// t: exponent of the rate in the utility; below 1, so that flows share fairly (section 3).
  double throughput_exponent = 0.9;
  /// b: weight of the RTT gradient; 0 gives the form that looks at losses only (section 3).
  double rtt_gradient_coefficient = 900.0;
  /// c: weight of the loss rate. At 100 Mbit/s the utility grows with the rate up to a loss rate of 5 % (section 3).
  double loss_coefficient = 11.35;
  /// epsilon: distance of the trial rates from the base rate (section 4).
  double trial_step = 0.05;
  /// theta_0: Mbit/s of change per unit of the utility's gradient (section 4).
  double conversion_factor = 1.0;
  /// omega_0: largest relative change of the rate at first (section 4).
  double change_boundary = 0.05;
  /// delta: what is added to `change_boundary` each time that a change reaches it (section 4).
  double change_boundary_step = 0.1;
  /// Smaller RTT gradients count as 0 (section 4).
  double rtt_gradient_threshold = 0.01;
  /// A monitor interval lasts one RTT and at least this many packets. 10: WebRTC's implementation.
  std::int64_t min_interval_packets = 10;
  /// Whether to repeat trials once if the faster one loses less, as WebRTC does.
  bool has_double_check = false;

  void Describe(ParameterReader& reader);
};

/// What a monitor interval measures: the packets sent in it that have been acknowledged or lost so far.
class MonitorInterval {
 public:
  MonitorInterval() = default;
  /// An interval at `rate` (bit/s) that begins with the next packet.
  MonitorInterval(double rate, Nanoseconds now, Bytes delivered, Bytes sent)
      : rate_(rate), start_(now), first_delivered_(delivered), first_sent_(sent) {}

  /// Ends the interval: later packets belong to others.
  void End(Bytes delivered) { end_delivered_ = delivered; }
  /// Takes an ACK if its newest packet was sent in the interval.
  void OnAck(const AckEvent& ack);

  bool IsOver(Nanoseconds now, Nanoseconds duration, Bytes sent, Bytes min_bytes) const {
    return now - start_ >= duration && sent - first_sent_ >= min_bytes;
  }
  /// Whether a packet that was sent after the interval has been acknowledged.
  bool IsMeasured(const RateSample& sample) const {
    return sample.is_valid && sample.prior_delivered >= end_delivered_;
  }

  double rate() const { return rate_; }
  double LossRate() const;
  /// Slope of the RTT over the time of sending, by linear regression; 0 with fewer than two RTTs.
  double RttGradient() const;
  bool is_app_limited() const { return is_app_limited_; }

 private:
  double rate_ = 0.0;
  Nanoseconds start_ = 0;
  Bytes first_delivered_ = 0;
  Bytes end_delivered_ = std::numeric_limits<Bytes>::max();
  Bytes first_sent_ = 0;
  Bytes acked_ = 0;
  Bytes lost_ = 0;
  bool is_app_limited_ = false;
  // Sums over the RTTs, in s since `start_`.
  double count_ = 0.0;
  double sum_time_ = 0.0;
  double sum_rtt_ = 0.0;
  double sum_time_rtt_ = 0.0;
  double sum_time_time_ = 0.0;
};

/// PCC Vivace (Dong et al., NSDI 2018): tries two rates, measures the utility of each, and moves the rate along the
/// utility's gradient; docs/algorithms/vivace.md.
class VivaceController final : public Controller {
 public:
  VivaceController(const Connection& connection, const VivaceParameters& parameters);

  void OnAck(const AckEvent& ack) override;
  void OnRecovery(Recovery state, Nanoseconds now, Bytes in_flight) override;
  void OnRestart(Nanoseconds /*now*/) override { trial_count_ = 0; }
  Decision decision() const override;
  Metrics metrics() const override;

 private:
  void UpdateRtt(Nanoseconds rtt);
  void StartTrials(const AckEvent& ack);
  void StartInterval(const AckEvent& ack, double rate);
  /// Draws conclusions from the finished trials.
  void EndTrials();
  double Utility(const MonitorInterval& interval) const;
  /// The change of the rate, in bit/s, for a gradient of the utility per Mbit/s.
  double RateChange(double gradient);
  void SetRate(double rate);

  Connection connection_;
  VivaceParameters parameters_;
  Random random_;
  Nanoseconds smoothed_rtt_ = 0;

  bool is_starting_ = true;
  /// Base rate, in bit/s; 0 before the first RTT.
  double rate_ = 0.0;
  /// Utility of the last interval of the starting phase.
  double last_utility_ = -std::numeric_limits<double>::infinity();

  // One trial while starting, else two. They are sent one after the other; then the flow waits for their ACKs.
  std::array<MonitorInterval, 2> trials_;
  std::array<double, 2> trial_rates_{};
  std::size_t trial_count_ = 0;
  std::size_t trials_sent_ = 0;
  bool is_repeated_ = false;

  /// Decisions in a row in one direction: positive upwards, negative downwards.
  std::int64_t same_direction_ = 0;
  /// How many steps the change boundary has grown by.
  std::int64_t cut_changes_ = 0;
};

}  // namespace bbrgym
