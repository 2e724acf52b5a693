#pragma once

#include <cstdint>
#include <deque>

#include "baselines/cc/bbr.h"

namespace bbrgym {

struct BbrAcwParameters : PapersBbrParameters {
  /// Above this multiple of RTprop the load is high (Algorithm 1: I > 1.25 Q, where the bandwidth cancels).
  double high_load_ratio = 1.25;
  /// The smallest RTT of the last rounds counts as above RTprop if it exceeds it by this share; less is noise.
  double min_rtt_tolerance = 0.01;
  /// Window of the smallest RTT that Algorithm 1 compares with RTprop.
  std::int64_t min_rtt_rounds = 3;
  /// Window of the largest and smallest delivery rate under high load.
  std::int64_t rate_rounds = 10;
  /// Algorithm 1 to the letter: its first branch has no lower bound, and it decides on every ACK.
  bool is_algorithm_one_literal = false;
  /// The two halves of the algorithm: alpha widens the window, beta narrows it.
  bool has_alpha = true;
  bool has_beta = true;
  /// Whether beta applies only after a loss, as in Algorithm 1; else a long queue is enough.
  bool is_beta_after_loss = true;

  void Describe(ParameterReader& reader);
};

/// BBR-ACW (Electronics 2021, 10, 615): in ProbeBW the gain of the window grows with the delivery rate under low load,
/// and shrinks after a loss under high load; docs/algorithms/bbr-acw.md.
class BbrAcwController final : public BbrController {
 public:
  BbrAcwController(const Connection& connection, const BbrAcwParameters& parameters);

 private:
  /// Measurements of one round.
  struct Round {
    Nanoseconds rtt_sum = 0;
    std::int64_t rtt_count = 0;
    Nanoseconds min_rtt = 0;
    BitsPerSecond max_rate_in_high_load = 0;
    BitsPerSecond min_rate_in_high_load = 0;
    bool has_loss = false;
  };

  void Observe(const AckEvent& ack) override;
  Gains ChooseGains() const override;

  double Decide(const Round& round, Nanoseconds rtt) const;
  double Alpha() const;

  BbrAcwParameters adaptive_;
  std::deque<Round> rounds_;  // the current one first
  BitsPerSecond rate_ = 0;
  double cwnd_gain_;
};

}  // namespace bbrgym
