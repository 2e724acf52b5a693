// Every term of rewards: its bounds, what it is where its formula gives NaN, its formula, and its meaning. TERMS of
// bbrgym.envs.reward is this list.

#include "envs/model/reward.h"

#include <cmath>
#include <stdexcept>
#include <string_view>

#include "baselines/cc/elementary.h"

namespace bbrgym {
namespace {

/// Fraction of a fair share below which utilities no longer fall; the logarithm of 0 would be -infinity.
constexpr double kSmallestShare = 0.05;

/// The link's rate in payload.
double Capacity(const StepOfFlow& step) {
  return step.link.row.rate_mbps * step.conditions.payload;
}

double Throughput(const StepOfFlow& step) {
  return step.row.delivery_rate_mbps / Capacity(step);
}

/// The fair share is the capacity over the number of flows that took part in the step. No sender knows it; only the
/// reward in training does. The sum of `ln x` is the alpha-fair utility with alpha = 1 (Kelly 1997; Mo and Walrand
/// 2000). The term is capped at the fair share because every flow maximises its own reward only: a flow gains nothing
/// by taking more than its share, so equal shares are best for each flow too.
double LogThroughput(const StepOfFlow& step) {
  return Log(Throughput(step) * step.link.count);
}

/// The mean is over the flows that took part in the step, whoever drives them; each counts at least ln 0.05. This is
/// the alpha-fair utility with alpha = 1 minus its value for equal shares of a full link. So it is 0 there, its
/// maximum, and negative everywhere else (Jensen). Unlike `log_throughput` it rewards a flow for leaving others their
/// share, and for using what they cannot.
double AlphaFair(const StepOfFlow& step) {
  const double per_share = step.link.count / Capacity(step);
  double sum = 0.0;
  for (const FlowRow& flow : step.link.flows) {
    if (TookPart(flow)) sum += Log(std::fmax(flow.delivery_rate_mbps * per_share, kSmallestShare));
  }
  return sum / step.link.count;
}

/// The longest RTT is of all flows of the scenario, so that a millisecond of queue costs each of them the same.
double Delay(const StepOfFlow& step) {
  const Conditions& of = step.conditions;
  return (of.rtt_ms - step.row.rtt_mean_ms) / of.longest_rtt_ms * of.delay_weight;
}

double Loss(const StepOfFlow& step) {
  return -(step.row.lost_packets / std::max(step.row.sent_packets, 1.0));
}

double Fairness(const StepOfFlow& step) {
  double total = 0.0;
  double squares = 0.0;
  for (const FlowRow& flow : step.link.flows) {
    if (!TookPart(flow)) continue;
    total += flow.delivery_rate_mbps;
    squares += flow.delivery_rate_mbps * flow.delivery_rate_mbps;
  }
  return squares > 0.0 ? total * total / (step.link.count * squares) : 0.0;
}

double Utilisation(const StepOfFlow& step) {
  return step.link.row.utilisation;
}

std::vector<StepFormula> MakeTerms() {
  const double low = Log(kSmallestShare);
  return {
      {"throughput", 0.0, 1.0, 0.0, false, Throughput,
       "delivery_rate / capacity: the flow's share of the link, whose capacity is its rate in payload"},
      {"log_throughput", low, 0.0, 0.0, false, LogThroughput,
       "ln(delivery_rate / fair_share), from ln 0.05: proportional fairness up to the fair share"},
      {"alpha_fair", low, 0.0, 0.0, true, AlphaFair,
       "mean of ln(delivery_rate / fair_share) of the link's flows: proportional fairness of the whole link"},
      {"delay", -4.0, 0.0, 0.0, false, Delay,
       "-(rtt_mean - base_rtt) / longest_base_rtt: queueing delay in RTTs, times 9^(1/2 - 2 p) for a preference p"},
      {"loss", -1.0, 0.0, 0.0, false, Loss, "-lost_packets / sent_packets"},
      {"fairness", 0.0, 1.0, 0.0, true, Fairness, "Jain's index of the delivery rates of the link's flows"},
      {"utilisation", 0.0, 1.0, 0.0, true, Utilisation, "share of the link's capacity that was used"},
  };
}

const StepFormula& Find(const std::vector<StepFormula>& formulas, std::string_view name) {
  std::string known;
  for (const StepFormula& formula : formulas) {
    if (name == formula.name) return formula;
    known += (known.empty() ? "" : ", ") + std::string(formula.name);
  }
  throw std::invalid_argument("unknown formula '" + std::string(name) + "'; known: " + known);
}

StepOfLink StepOf(const LinkFlows& flows) {
  const auto count = std::ranges::count_if(flows.rows, TookPart);
  return {flows.rows, flows.link, std::max(static_cast<double>(count), 1.0)};
}

/// Calls `use(flow, value)` for each chosen flow of a link.
template <typename Use>
void ForEachValue(const StepFormula& formula, const LinkFlows& flows, const StepOfLink& link, Use use) {
  double value = 0.0;
  for (std::size_t i = 0; i < flows.chosen.size(); ++i) {
    if (i == 0 || !formula.is_of_link) {
      const auto flow = static_cast<std::size_t>(flows.chosen[i]);
      value = formula.Evaluate({link, flows.rows[flow], flows.conditions[i]});
    }
    use(i, value);
  }
}

}  // namespace

const std::vector<StepFormula>& RewardTerms() {
  static const std::vector<StepFormula> kTerms = MakeTerms();
  return kTerms;
}

Reward::Reward(const std::vector<std::pair<std::string, double>>& weights) {
  for (const auto& [name, weight] : weights) terms_.emplace_back(&Find(RewardTerms(), name), weight);
}

void Reward::Evaluate(const LinkFlows& flows, double* rewards) const {
  const StepOfLink link = StepOf(flows);
  std::fill_n(rewards, flows.chosen.size(), 0.0);
  for (const auto& [term, weight] : terms_) {
    ForEachValue(*term, flows, link,
                 [&, weight = weight](std::size_t i, double value) { rewards[i] += weight * value; });
  }
  for (std::size_t i = 0; i < flows.chosen.size(); ++i) {
    if (!TookPart(flows.rows[static_cast<std::size_t>(flows.chosen[i])])) rewards[i] = 0.0;
  }
}

}  // namespace bbrgym
