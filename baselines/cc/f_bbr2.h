#pragma once

#include "baselines/cc/bbr2.h"

namespace bbrgym {

struct FBbr2Parameters : Bbr2Parameters {
  /// A windowed minimum of the RTT above so many base RTTs betrays a loss-based rival: BBRv2 alone keeps at most 2 BDP
  /// in flight.
  double rival_rtt_ratio = 2.0;
  /// What the pacing gains of ProbeBW are multiplied by then: the 15 % that BBRv2's headroom gives away.
  double rival_gain = 1.15;
  /// …and its window's gain: 1.15 lets a flow that its window limits use the higher rate. The paper names only the
  /// rate.
  double rival_cwnd_gain = 1.0;
  /// Gives up BBRv2's headroom as well while there is a rival.
  bool is_headroom_removed = false;
  /// The base RTT where it is known, for a flow that never sees an empty queue; 0: the smallest RTT of the connection.
  double base_rtt_ms = 0.0;

  void Describe(ParameterReader& reader);
};

/// F-BBRv2 (Cho, Kim, Cho): BBRv2 that sends faster in ProbeBW while it shares the link with CUBIC;
/// docs/algorithms/f-bbr2.md.
class FBbr2Controller final : public Bbr2Controller {
 public:
  FBbr2Controller(const Connection& connection, const FBbr2Parameters& parameters);

 private:
  void Observe(const AckEvent& ack) override;
  Gains ChooseGains() const override;
  double Headroom() const override;
  bool HasRival() const;

  FBbr2Parameters fair_;
  Nanoseconds base_rtt_ = 0;
};

}  // namespace bbrgym
