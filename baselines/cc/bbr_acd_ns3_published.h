#pragma once

#include "baselines/cc/bbr.h"

namespace bbrgym {

/// The simulation is built on BBR v1 of 2018, and has no parameters of its own.
using BbrAcdNs3PublishedParameters = PapersBbrParameters;

/// What the simulation published with BBR-ACD ran: its congestion detector always says no, and every ACK in recovery
/// halves; docs/algorithms/bbr-acd-ns3-published.md.
class BbrAcdNs3PublishedController final : public BbrController {
 public:
  BbrAcdNs3PublishedController(const Connection& connection, const BbrAcdNs3PublishedParameters& parameters);

 private:
  void Observe(const AckEvent& ack) override;
  Gains ChooseGains() const override;
  bool RecoverOrRestoreCwnd(const AckEvent& ack) override;

  Mode last_mode_ = Mode::kStartup;
  bool is_window_one_bdp_ = false;
};

}  // namespace bbrgym
