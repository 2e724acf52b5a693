#pragma once

#include "baselines/cc/backlog_correction.h"
#include "baselines/cc/bbr_model.h"
#include "baselines/cc/free_link.h"

namespace bbrgym {

struct BbrBacklogParameters : BbrModelParameters {
  /// What each flow keeps in the queue: few enough for a short queue, enough that a flow notices when others leave.
  double backlog_packets = 1.4;
  /// Above 1, so that the window is what limits the flow.
  double pacing_gain = 1.1;
  /// How many rounds the correction of the window lasts. 0: there is none.
  double correction_rounds = 10.0;
  /// RTTs above base_rtt by this much, and by a twentieth of it at most, are noise of hosts and of the path's lower
  /// layers. On a fast link it is more packets than the flow keeps in the queue.
  double ignored_delay_ms = 0.3;
  /// Whether the window grows for as long as RTTs show no queue (FreeLink).
  bool fills_free_link = true;

  void Describe(ParameterReader& reader);
};

/// BBR's model of the path, and in ProbeBW a window with the same small number of packets in the queue for every flow.
class BbrBacklogController final : public BbrModelController {
 public:
  BbrBacklogController(const Connection& connection, const BbrBacklogParameters& parameters);

 private:
  void Observe(const AckEvent& ack) override;
  Gains ChooseGains() const override;
  void MoveCwnd(const AckEvent& ack, Bytes target) override;
  Nanoseconds BaseRtt() const override;
  double BacklogBytes() const { return backlog_.backlog_packets * static_cast<double>(connection().packet_bytes); }
  /// The window in BDPs, without the correction.
  double CwndGain() const;
  void NoticeFreeLink(const AckEvent& ack);

  BbrBacklogParameters backlog_;
  BacklogCorrection correction_;
  FreeLink free_link_;
};

}  // namespace bbrgym
