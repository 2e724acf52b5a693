// F-BBRv2.
//
//   while min_rtt > 2 x base RTT, a CUBIC flow shares the link: pacing gains of ProbeBW x 1.15
//
// Source: Cho, Kim, Cho, "Improvement of Bandwidth Fairness between TCP BBRv2 and CUBIC", which has no
// formulas. Ours: the base RTT is the smallest RTT of the connection, min_rtt is BBRv2's windowed one; headroom and
// window do not change.

#include "baselines/cc/f_bbr2.h"

#include <algorithm>

namespace bbrgym {

void FBbr2Parameters::Describe(ParameterReader& reader) {
  Bbr2Parameters::Describe(reader);
  reader.Field("rival_rtt_ratio", rival_rtt_ratio, 1.0, 100.0);
  reader.Field("rival_gain", rival_gain, 1.0, 10.0);
  reader.Field("rival_cwnd_gain", rival_cwnd_gain, 1.0, 10.0);
  reader.Field("is_headroom_removed", is_headroom_removed);
  reader.Field("base_rtt_ms", base_rtt_ms, 0.0, 10'000.0);
}

FBbr2Controller::FBbr2Controller(const Connection& connection, const FBbr2Parameters& parameters)
    : Bbr2Controller(connection, parameters),
      fair_(parameters),
      base_rtt_(static_cast<Nanoseconds>(parameters.base_rtt_ms * kMillisecond)) {}

void FBbr2Controller::Observe(const AckEvent& ack) {
  if (ack.rtt > 0 && fair_.base_rtt_ms == 0.0) base_rtt_ = base_rtt_ == 0 ? ack.rtt : std::min(base_rtt_, ack.rtt);
}

Gains FBbr2Controller::ChooseGains() const {
  Gains gains = Bbr2Controller::ChooseGains();
  if (HasRival() && mode() == Mode::kProbeBw) {
    gains.pacing *= fair_.rival_gain;
    gains.cwnd *= fair_.rival_cwnd_gain;
  }
  return gains;
}

double FBbr2Controller::Headroom() const {
  return fair_.is_headroom_removed && HasRival() ? 0.0 : Bbr2Controller::Headroom();
}

bool FBbr2Controller::HasRival() const {
  return static_cast<double>(min_rtt()) > fair_.rival_rtt_ratio * static_cast<double>(base_rtt_);
}

}  // namespace bbrgym
