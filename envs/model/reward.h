#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "envs/model/rows.h"

/// What agents are rewarded for: it may depend on all of a step, more than a sender knows. reward.cc has the formulas.
namespace bbrgym {

/// What the formulas need to know of the scenario of a flow; CONDITIONS of bbrgym.envs.reward.
struct Conditions {
  double payload;         // share of the link's bytes
  double rtt_ms;          // the flow's base RTT
  double longest_rtt_ms;  // the longest base RTT on its link
  double delay_weight;    // of the term `delay`
};

inline constexpr std::size_t kConditions = sizeof(Conditions) / sizeof(double);

/// A step of a link.
struct StepOfLink {
  std::span<const FlowRow> flows;  // all of the link; NaN where there is none
  const LinkRow& row;
  double count;  // how many of the flows took part, at least 1
};

/// A step of a flow.
struct StepOfFlow {
  const StepOfLink& link;
  const FlowRow& row;
  const Conditions& conditions;
};

/// One number about a flow's step: a formula, clipped to [low, high]. It is `missing` where the formula gives NaN.
struct StepFormula {
  const char* name;
  double low;
  double high;
  double missing;
  bool is_of_link;  // the same for all flows of a link
  double (*formula)(const StepOfFlow& step);
  const char* meaning;

  double Evaluate(const StepOfFlow& step) const {
    const double value = formula(step);
    return std::isnan(value) ? missing : std::clamp(value, low, high);
  }
};

/// Every term of rewards. More is better: a cost is negative.
const std::vector<StepFormula>& RewardTerms();

/// The flows of one link whose steps are evaluated.
struct LinkFlows {
  std::span<const FlowRow> rows;  // of all flows of the link
  const LinkRow& link;
  std::span<const std::int64_t> chosen;  // which of them
  const Conditions* conditions;          // of the chosen ones
};

/// The weighted sum of terms; 0 in steps in which the flow takes no part.
class Reward {
 public:
  /// Weights by the names of terms. Throws std::invalid_argument for an unknown one.
  explicit Reward(const std::vector<std::pair<std::string, double>>& weights);

  /// Writes the rewards of the chosen flows of a link: finite.
  void Evaluate(const LinkFlows& flows, double* rewards) const;

 private:
  std::vector<std::pair<const StepFormula*, double>> terms_;
};

}  // namespace bbrgym
