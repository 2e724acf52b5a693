// BBR-ACW.
//
//   alpha = max(1, 2 (d - d_min) / (d_max - d_min)) in [1, 2]                      equation (1)
//   beta  = T / (T + p) in [1/2, 1)                                                equation (2)
//   1 < T/p <= 1.25 and min RTT of 3 rounds > p:   cwnd_gain = 2 alpha             Algorithm 1
//   T/p > 1.25 and a loss in the last round:       cwnd_gain = 2 beta
//   else                                           cwnd_gain = 2
//
// with T the mean RTT of the last round, p = RTprop, d the delivery rate, d_max and d_min its largest and smallest
// under high load (T/p > 1.25) in 10 rounds. Source: Electronics 2021, 10(5), 615, section 4. Ours: one decision per
// round, the rates of the flow itself (a sender knows no others), the tolerance of 1 %.

#include "baselines/cc/bbr_acw.h"

#include <algorithm>

namespace bbrgym {

void BbrAcwParameters::Describe(ParameterReader& reader) {
  BbrParameters::Describe(reader);
  reader.Field("high_load_ratio", high_load_ratio, 1.0, 100.0);
  reader.Field("min_rtt_tolerance", min_rtt_tolerance, 0.0, 10.0);
  reader.Field("min_rtt_rounds", min_rtt_rounds, 1, 1000);
  reader.Field("rate_rounds", rate_rounds, 1, 1000);
  reader.Field("is_algorithm_one_literal", is_algorithm_one_literal);
  reader.Field("has_alpha", has_alpha);
  reader.Field("has_beta", has_beta);
  reader.Field("is_beta_after_loss", is_beta_after_loss);
}

BbrAcwController::BbrAcwController(const Connection& connection, const BbrAcwParameters& parameters)
    : BbrController(connection, parameters), adaptive_(parameters), rounds_(1), cwnd_gain_(parameters.cwnd_gain) {}

void BbrAcwController::Observe(const AckEvent& ack) {
  if (is_round_start()) {
    if (!adaptive_.is_algorithm_one_literal && rounds_.front().rtt_count > 0) {
      const Round& last = rounds_.front();
      cwnd_gain_ = Decide(last, last.rtt_sum / last.rtt_count);
    }
    rounds_.emplace_front();
    const std::int64_t kept = std::max(adaptive_.min_rtt_rounds, adaptive_.rate_rounds) + 1;
    if (static_cast<std::int64_t>(rounds_.size()) > kept) rounds_.pop_back();
  }
  Round& round = rounds_.front();
  if (ack.bytes_lost > 0) round.has_loss = true;
  if (ack.rtt > 0) {
    round.min_rtt = round.rtt_count == 0 ? ack.rtt : std::min(round.min_rtt, ack.rtt);
    round.rtt_sum += ack.rtt;
    ++round.rtt_count;
  }
  if (ack.sample.is_valid) {
    rate_ = ack.sample.delivery_rate;
    const double ratio = static_cast<double>(ack.rtt) / static_cast<double>(std::max(min_rtt(), Nanoseconds{1}));
    if (ratio > adaptive_.high_load_ratio) {
      const bool is_first = round.max_rate_in_high_load == 0;
      round.max_rate_in_high_load = std::max(round.max_rate_in_high_load, rate_);
      round.min_rate_in_high_load = is_first ? rate_ : std::min(round.min_rate_in_high_load, rate_);
    }
  }
  if (adaptive_.is_algorithm_one_literal && ack.rtt > 0) cwnd_gain_ = Decide(round, ack.rtt);
}

Gains BbrAcwController::ChooseGains() const {
  Gains gains = BbrController::ChooseGains();
  if (mode() == Mode::kProbeBw) gains.cwnd = cwnd_gain_;
  return gains;
}

double BbrAcwController::Decide(const Round& round, Nanoseconds rtt) const {
  const double usual = parameters().cwnd_gain;
  if (min_rtt() == 0) return usual;
  const auto propagation = static_cast<double>(min_rtt());
  const double ratio = static_cast<double>(rtt) / propagation;
  if (ratio > adaptive_.high_load_ratio) {
    const double beta = ratio / (ratio + 1.0);
    return adaptive_.has_beta && (round.has_loss || !adaptive_.is_beta_after_loss) ? usual * beta : usual;
  }
  if (!adaptive_.has_alpha || (ratio <= 1.0 && !adaptive_.is_algorithm_one_literal)) return usual;
  Nanoseconds recent_min_rtt = 0;
  for (std::size_t i = 0; i < rounds_.size() && static_cast<std::int64_t>(i) < adaptive_.min_rtt_rounds; ++i) {
    if (rounds_[i].rtt_count == 0) continue;
    recent_min_rtt = recent_min_rtt == 0 ? rounds_[i].min_rtt : std::min(recent_min_rtt, rounds_[i].min_rtt);
  }
  const bool has_risen = static_cast<double>(recent_min_rtt) > propagation * (1.0 + adaptive_.min_rtt_tolerance);
  return has_risen ? usual * Alpha() : usual;
}

double BbrAcwController::Alpha() const {
  BitsPerSecond most = 0;
  BitsPerSecond least = 0;
  for (std::size_t i = 0; i < rounds_.size() && static_cast<std::int64_t>(i) < adaptive_.rate_rounds; ++i) {
    const Round& round = rounds_[i];
    if (round.max_rate_in_high_load == 0) continue;
    least = most == 0 ? round.min_rate_in_high_load : std::min(least, round.min_rate_in_high_load);
    most = std::max(most, round.max_rate_in_high_load);
  }
  if (most == least) return 1.0;
  const double position = static_cast<double>(rate_ - least) / static_cast<double>(most - least);
  return std::clamp(2.0 * position, 1.0, 2.0);
}

}  // namespace bbrgym
