#pragma once

#include <cstdint>

#include "baselines/cc/loss_based.h"
#include "baselines/cc/marked_share.h"
#include "baselines/cc/parameters.h"

namespace bbrgym {

struct PragueParameters {
  /// The weight of a period in alpha (tcp_prague.c: PRAGUE_SHIFT_G; DCTCP's g).
  double ecn_alpha_gain = 1.0 / 16.0;
  /// What the window loses after marks, as a multiple of alpha (prague_enter_cwr).
  double ecn_factor = 0.5;
  /// The window after a loss as a share of the one before (prague_enter_loss).
  double beta = 0.5;
  /// The RTT from which a flow behaves as a flow of this RTT (prague_rtt_target); 0 for no RTT independence.
  double rtt_virt_min_ms = 25.0;
  /// Periods after slow start before it does so: short flows gain by a short RTT (prague_rtt_transition).
  std::int64_t rtt_independence_rounds = 500;

  void Describe(ParameterReader& reader);
};

/// TCP Prague: a scalable controller for L4S. The window shrinks with the share of marked packets;
/// docs/algorithms/prague.md.
class PragueController final : public LossBasedController {
 public:
  PragueController(const Connection& connection, const PragueParameters& parameters);

  Metrics metrics() const override;

 private:
  /// A round trip: until everything in flight at its start is delivered, and no shorter than a time.
  struct RoundTrip {
    Bytes end = 0;
    Nanoseconds start = INT64_MIN / 2;  // long over

    void Begin(const AckEvent& ack) {
      end = ack.delivered + ack.in_flight;
      start = ack.now;
    }
    bool IsOver(const AckEvent& ack, Nanoseconds least) const {
      return ack.delivered > end && ack.now - start >= least;
    }
  };

  void Observe(const AckEvent& ack) override;
  void AnswerMark(const AckEvent& ack);
  void GrowInAvoidance(const AckEvent& ack) override;
  Bytes ReducedThreshold() override;

  bool IsRttIndependent() const { return rounds_ >= parameters_.rtt_independence_rounds; }
  /// The RTT of the flow that this flow behaves as.
  Nanoseconds VirtualRtt() const;

  PragueParameters parameters_;
  MarkedShare marked_share_;
  bool has_marks_ = false;
  RoundTrip alpha_period_;
  RoundTrip answer_;
  /// What the last answer took from the window.
  Bytes reduction_ = 0;
  /// Periods of alpha since slow start.
  std::int64_t rounds_ = 0;
  /// What the window has not yet grown by, in bytes.
  double cwnd_fraction_ = 0.0;
};

}  // namespace bbrgym
