#pragma once

#include <cstdint>

#include "baselines/cc/controller.h"
#include "baselines/cc/parameters.h"
#include "baselines/cc/round_counter.h"
#include "baselines/cc/windowed_max.h"
#include "baselines/cc/windowed_min.h"

namespace bbrgym {

struct CopaParameters {
  /// Weight of delay against throughput: a flow alone keeps about 1/delta packets in the queue (section 2.2).
  double delta = 0.5;
  /// Whether to lower delta while another flow keeps the queue from emptying (section 2.2).
  bool has_competitive_mode = true;
  /// Whether to reset the velocity as soon as the rate crosses its target, as mvfst does. The paper does so once per
  /// window; a lone flow then swings from an empty to a full path and back.
  bool has_early_velocity_reset = true;
  /// Window of RTTmin (section 2.1).
  double min_rtt_window_s = 10.0;

  void Describe(ParameterReader& reader);
};

/// Copa (Arun, Balakrishnan, NSDI 2018): moves the window towards a target rate that the queueing delay sets;
/// docs/algorithms/copa.md.
class CopaController final : public Controller {
 public:
  CopaController(const Connection& connection, const CopaParameters& parameters);

  void OnAck(const AckEvent& ack) override;
  void OnRecovery(Recovery state, Nanoseconds now, Bytes in_flight) override;
  void OnRestart(Nanoseconds now) override { last_empty_ = now; }
  Decision decision() const override;
  Metrics metrics() const override;

 private:
  void UpdateRtt(Nanoseconds now, Nanoseconds rtt);
  void UpdateMode(Nanoseconds now);
  /// Once per round trip: the velocity, and in competitive mode delta.
  void EndRound();
  void MoveCwnd(const AckEvent& ack);

  void ResetVelocity();
  Nanoseconds standing_rtt() const { return standing_rtt_.Least(); }
  Nanoseconds min_rtt() const { return min_rtt_.Least(); }
  Nanoseconds max_rtt() const { return max_rtt_.Best(); }

  Connection connection_;
  CopaParameters parameters_;
  RoundCounter rounds_;
  WindowedMin<Nanoseconds> min_rtt_;
  WindowedMin<Nanoseconds> standing_rtt_;
  WindowedMax<Nanoseconds> max_rtt_;
  Nanoseconds smoothed_rtt_ = 0;

  Recovery recovery_ = Recovery::kOpen;
  bool is_slow_start_ = true;
  bool is_competitive_ = false;
  bool has_loss_in_round_ = false;
  bool is_limited_in_round_ = false;  // by the window
  /// When the queue was nearly empty last.
  Nanoseconds last_empty_ = 0;
  /// 1/delta.
  double inverse_delta_;
  double cwnd_packets_;

  double velocity_ = 1.0;
  bool is_upwards_ = true;
  std::int64_t rounds_in_direction_ = 0;
  double cwnd_at_round_start_;
};

}  // namespace bbrgym
