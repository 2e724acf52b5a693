#pragma once

#include <algorithm>
#include <cstdint>

#include "baselines/cc/controller.h"
#include "baselines/cc/hystart.h"
#include "baselines/cc/prr.h"

namespace bbrgym {

/// What window-based controllers that answer losses share: slow start, fast recovery by PRR, the restart after a
/// timeout, the answer to CE marks (at most one per round trip), the undo of an answer to losses that were none, and a
/// pacing rate. A controller that derives from it decides how the window moves in congestion avoidance, and how far a
/// loss and a mark reduce it.
class LossBasedController : public Controller {
 public:
  void OnAck(const AckEvent& ack) final;
  void OnRecovery(Recovery state, Nanoseconds now, Bytes in_flight) final;
  bool OnSpuriousRecovery() final;
  void OnRestart(Nanoseconds now) override { last_ack_ = now; }
  Decision decision() const final;
  Metrics metrics() const override;

 protected:
  struct Options {
    bool has_hystart = false;
    bool is_paced = false;
    /// Windows per round trip at which the flow paces after early slow start: that of Linux (tcp_pacing_ca_ratio).
    double pacing_gain = 1.2;
    /// Whether marks are answered as losses are, by the threshold and once per round trip (RFC 3168). If not, the
    /// controller answers them in `Observe`.
    bool is_mark_congestion_event = true;
  };

  LossBasedController(const Connection& connection, const Options& options);

  /// Hook: takes an ACK before every other hook. The smoothed RTT, `delivered` and `limited_time` include it, the
  /// window not yet.
  virtual void Observe(const AckEvent& /*ack*/) {}
  /// Hook: grows the window in congestion avoidance, on an ACK while the window limits the flow.
  virtual void GrowInAvoidance(const AckEvent& ack) = 0;
  /// Hook: returns the slow-start threshold after a congestion event. Called once per event, before the window changes.
  virtual Bytes ReducedThreshold() = 0;
  /// Hook: the same after a CE mark. RFC 3168 answers it as a loss.
  virtual Bytes MarkedThreshold() { return ReducedThreshold(); }
  /// Hook: takes a retransmission timeout.
  virtual void OnTimeout() {}
  /// Hook: takes back what the last `ReducedThreshold` and the timeouts since have changed, besides the window and the
  /// threshold.
  virtual void UndoReduction() {}

  /// Begins congestion avoidance at the current window, unless it has begun below it.
  void EndSlowStart() { ssthresh_ = std::min(ssthresh_, cwnd_); }

  bool IsSlowStart() const { return cwnd_ < ssthresh_; }
  Recovery recovery() const { return recovery_; }
  Bytes packet_bytes() const { return connection_.packet_bytes; }
  /// Total of the connection.
  Bytes delivered() const { return delivered_; }
  Nanoseconds smoothed_rtt() const { return smoothed_rtt_; }
  /// A clock that runs only while the window limits the flow: it stands still in a pause, and while the application
  /// sends less than the window allows.
  Nanoseconds limited_time() const { return limited_time_; }
  Bytes MinCwnd() const { return 2 * connection_.packet_bytes; }  // RFC 5681, equation (4)

  Bytes cwnd_;

 private:
  static constexpr Bytes kNoThreshold = INT64_MAX;
  static constexpr Bytes kNoMark = -1;

  void UpdateRtt(Nanoseconds rtt);
  void UpdatePacingRate();
  /// Whether the round trip of the last answer to a mark goes on: what was in flight then is not delivered.
  bool IsMarkAnswered() const { return delivered_ <= mark_end_; }

  Connection connection_;
  Options options_;
  HyStart hystart_;
  ProportionalRateReduction prr_;
  Recovery recovery_ = Recovery::kOpen;
  bool is_prr_started_ = false;
  Bytes ssthresh_ = kNoThreshold;
  // From before the recovery.
  Bytes cwnd_at_loss_ = 0;
  Bytes ssthresh_at_loss_ = kNoThreshold;
  bool is_reduced_ = false;  // by the recovery, not by marks of the same round trip
  Bytes delivered_ = 0;
  Bytes mark_end_ = kNoMark;  // what it is once everything that was in flight at the last answer to a mark is delivered
  Nanoseconds smoothed_rtt_ = 0;
  Nanoseconds limited_time_ = 0;
  Nanoseconds last_ack_ = 0;  // or the end of the last pause
  BitsPerSecond pacing_rate_ = 0;
};

}  // namespace bbrgym
