#pragma once

#include "baselines/cc/bbr2.h"

namespace bbrgym {

struct FBbr2Parameters : Bbr2Parameters {
  /// A min_rtt above this multiple of the base RTT reveals a loss-based rival: BBRv2 alone keeps at most 2 BDP in
  /// flight.
  double rival_rtt_ratio = 2.0;
  /// Factor of the pacing gains in ProbeBW beside a rival: the 15 % that BBRv2's headroom gives away.
  double rival_gain = 1.15;
  /// Factor of the window's gain beside a rival: with 1.15, a flow that its window limits can use the higher rate. The
  /// paper names the rate only.
  double rival_cwnd_gain = 1.0;
  /// Whether to give up BBRv2's headroom as well beside a rival.
  bool is_headroom_removed = false;
  /// The base RTT if it is known, for a flow that never sees an empty queue. 0: the smallest RTT of the connection.
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
