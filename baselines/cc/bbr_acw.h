#pragma once

#include <cstdint>
#include <deque>

#include "baselines/cc/bbr.h"

namespace bbrgym {

struct BbrAcwParameters : PapersBbrParameters {
  /// Above this multiple of RTprop the load is high (Algorithm 1: I > 1.25 Q, where the bandwidth cancels).
  double high_load_ratio = 1.25;
  /// How much the last rounds' smallest RTT must be above RTprop to count as above it: noise.
  double min_rtt_tolerance = 0.01;
  /// Window of the smallest RTT that Algorithm 1 compares with RTprop.
  std::int64_t min_rtt_rounds = 3;
  /// Window of the largest and smallest delivery rate under high load.
  std::int64_t rate_rounds = 10;
  /// Algorithm 1 to the letter: its first branch has no lower bound, and every ACK decides anew.
  bool is_algorithm_one_literal = false;
  /// The two halves of the algorithm: growth by alpha, and shrinking by beta.
  bool has_alpha = true;
  bool has_beta = true;
  /// Algorithm 1 shrinks after a loss only; without this condition a long queue is enough.
  bool is_beta_after_loss = true;

  void Describe(ParameterReader& reader);
};

/// BBR-ACW (Electronics 2021, 10, 615): the window's gain in ProbeBW grows while a flow delivers much of what it did
/// under high load, and shrinks after a loss under high load; docs/algorithms/bbr-acw.md.
class BbrAcwController final : public BbrController {
 public:
  BbrAcwController(const Connection& connection, const BbrAcwParameters& parameters);

 private:
  /// What a round saw.
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
  std::deque<Round> rounds_;  // the present one first
  BitsPerSecond rate_ = 0;
  double cwnd_gain_;
};

}  // namespace bbrgym
