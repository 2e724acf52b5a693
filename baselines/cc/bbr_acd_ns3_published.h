#pragma once

#include "baselines/cc/bbr.h"

namespace bbrgym {

/// The simulation builds on BBR v1 of 2018 and has no parameters of its own.
using BbrAcdNs3PublishedParameters = PapersBbrParameters;

/// The simulation that was published with BBR-ACD: its congestion detector never fires, and every ACK in recovery
/// halves the window; docs/algorithms/bbr-acd-ns3-published.md.
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
