// Every feature that an agent can see: the columns that it needs, its bounds and neutral value, its formula over these
// columns in their order, and its meaning. FEATURES of bbrgym.envs.observation is this list.

#include "baselines/cc/policy/features.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "baselines/cc/agent.h"
#include "baselines/cc/elementary.h"

namespace bbrgym {
namespace {

struct Bounds {
  double low;
  double high;
  double neutral;
};

/// `Formula` takes one double per column; the compiler refuses a formula that uses anything else.
template <PolicyColumn... kColumns, typename Formula>
PolicyFeature Feature(const char* name, const Bounds& bounds, Formula, const char* code, const char* meaning) {
  return {name,           bounds.low,    bounds.high,
          bounds.neutral, {kColumns...}, [](const PolicyColumns& row) -> double { return Formula{}(row.*kColumns...); },
          code,           meaning,       false};
}

constexpr double kDefaultPreference = AgentParameters{}.preference;

/// A feature times the preference less its default: a policy that adds such features to others acts, at the default,
/// as without them.
PolicyFeature ByPreference(PolicyFeature feature) {
  const double below = -kDefaultPreference;
  const double above = 1.0 - kDefaultPreference;
  const auto [low, high] = std::pair(feature.low, feature.high);
  feature.name += "_by_preference";
  feature.low = std::min(low * above, high * below);
  feature.high = std::max(high * above, low * below);
  feature.neutral = 0.0;
  feature.columns.push_back(&PolicyColumns::preference);
  const std::string_view begin = ") { return ";
  const std::string_view end = "; }";
  const std::size_t begins = feature.code.find(begin);
  std::ostringstream code;
  code << feature.code.substr(0, begins) << ", double preference" << begin << "(preference - " << kDefaultPreference
       << ") * ("
       << feature.code.substr(begins + begin.size(), feature.code.size() - end.size() - begins - begin.size()) << ")"
       << end;
  feature.code = code.str();
  feature.meaning = "(preference - its default) x " + feature.meaning;
  feature.is_by_preference = true;
  return feature;
}

/// A formula as a function and as its text, in which macros are expanded. It must be C99 as well, since `bbrgym export`
/// writes the text into C headers: no functions but those of elementary.h, and modes by their numbers.
#define FORMULA(parameters, ...) \
  [] parameters -> double { return __VA_ARGS__; }, TEXT(parameters { return __VA_ARGS__; })
#define TEXT(...) #__VA_ARGS__

/// By Little's law, with the bandwidth from the BDP.
#define BACKLOG                                                                    \
  FORMULA((double rate, double bandwidth, double bdp, double rtt, double min_rtt), \
          Log2(1.0 + rate / bandwidth * bdp * (rtt / min_rtt - 1.0)))

static_assert(Mode{0} == Mode::kStartup && Mode{2} == Mode::kProbeBw && Mode{3} == Mode::kProbeRtt);

using Row = PolicyColumns;

std::vector<PolicyFeature> MakeFeatures() {
  std::vector<PolicyFeature> features = {
      Feature<&Row::delivery_rate_mbps, &Row::max_bandwidth_mbps>(
          "delivery_rate_ratio", {0.0, 2.0, 1.0}, FORMULA((double rate, double bandwidth), rate / bandwidth),
          "delivery_rate / max_bandwidth: 1 where the path delivers what the model expects"),
      Feature<&Row::delivery_rate_mbps, &Row::max_bandwidth_mbps>(
          "log_delivery_rate_ratio", {-5.0, 1.0, 0.0}, FORMULA((double rate, double bandwidth), Log2(rate / bandwidth)),
          "log2(delivery_rate / max_bandwidth)"),
      Feature<&Row::send_rate_mbps, &Row::delivery_rate_mbps>(
          "send_rate_ratio", {0.0, 4.0, 1.0}, FORMULA((double sent, double delivered), sent / delivered),
          "send_rate / delivery_rate: above 1 while a queue builds or packets are lost"),
      Feature<&Row::rtt_mean_ms, &Row::min_rtt_ms>("queueing_ratio", {0.0, 10.0, 0.0},
                                                   FORMULA((double rtt, double min_rtt), rtt / min_rtt - 1.0),
                                                   "rtt_mean / min_rtt - 1: queueing delay in RTTs"),
      Feature<&Row::rtt_mean_ms, &Row::min_rtt_ms>(
          "log_rtt_ratio", {0.0, 5.0, 0.0}, FORMULA((double rtt, double min_rtt), Log2(rtt / min_rtt)),
          "log2(rtt_mean / min_rtt): the same where queues of many RTTs matter"),
      Feature<&Row::rtt_last_ms, &Row::min_rtt_ms>("rtt_last_ratio", {1.0, 11.0, 1.0},
                                                   FORMULA((double rtt, double min_rtt), rtt / min_rtt),
                                                   "rtt_last / min_rtt: the queue now"),
      Feature<&Row::rtt_last_ms, &Row::min_rtt_ms>("log_rtt_last_ratio", {0.0, 5.0, 0.0},
                                                   FORMULA((double rtt, double min_rtt), Log2(rtt / min_rtt)),
                                                   "log2(rtt_last / min_rtt)"),
      Feature<&Row::in_flight_packets, &Row::bdp_packets>("in_flight_ratio", {0.0, 8.0, 0.0},
                                                          FORMULA((double in_flight, double bdp), in_flight / bdp),
                                                          "in_flight / bdp"),
      Feature<&Row::cwnd_packets, &Row::bdp_packets>("cwnd_ratio", {0.0, 8.0, 2.0},
                                                     FORMULA((double cwnd, double bdp), cwnd / bdp),
                                                     "cwnd / bdp; neutral is BBR's window"),
      Feature<&Row::in_flight_packets, &Row::bdp_packets>(
          "log_in_flight_ratio", {-4.0, 4.0, 0.0}, FORMULA((double in_flight, double bdp), Log2(in_flight / bdp)),
          "log2(in_flight / bdp)"),
      Feature<&Row::cwnd_packets, &Row::bdp_packets>(
          "log_cwnd_ratio", {-4.0, 4.0, 1.0}, FORMULA((double cwnd, double bdp), Log2(cwnd / bdp)), "log2(cwnd / bdp)"),
      Feature<&Row::delivery_rate_mbps, &Row::max_bandwidth_mbps, &Row::bdp_packets, &Row::rtt_mean_ms,
              &Row::min_rtt_ms>(
          "log_backlog", {0.0, 12.0, 0.0}, BACKLOG,
          "log2(1 + delivery_rate x (rtt_mean - min_rtt) in packets): what the flow has in the queue (Little's law)"),
      Feature<&Row::highest_bandwidth_mbps, &Row::delivery_rate_mbps>(
          "log_rate_decline", {0.0, 7.0, 0.0}, FORMULA((double highest, double rate), Log2(highest / rate)),
          "log2(highest_bandwidth / delivery_rate): how much less the flow gets than it once did"),
      Feature<&Row::min_rtt_ms, &Row::lowest_rtt_ms>(
          "log_stale_rtt_ratio", {0.0, 5.0, 0.0},
          FORMULA((double min_rtt, double lowest_rtt), Log2(min_rtt / lowest_rtt)),
          "log2(min_rtt / lowest_rtt): above 0 where the queue has not been empty for ten seconds"),
      Feature<&Row::standing_rtt_ms, &Row::lowest_rtt_ms>(
          "log_standing_rtt_ratio", {0.0, 5.0, 0.0},
          FORMULA((double standing_rtt, double lowest_rtt), Log2(standing_rtt / lowest_rtt)),
          "log2(smallest RTT of the last ProbeRTT / lowest_rtt): above 0 where others kept the queue from draining"),
      Feature<&Row::delivery_rate_mbps, &Row::max_bandwidth_mbps, &Row::bdp_packets, &Row::rtt_mean_ms,
              &Row::lowest_rtt_ms, &Row::min_rtt_ms>(
          "log_standing_backlog", {0.0, 12.0, 0.0},
          FORMULA((double rate, double bandwidth, double bdp, double rtt, double lowest_rtt, double min_rtt),
                  Log2(1.0 + rate / bandwidth * bdp * (rtt - lowest_rtt) / min_rtt)),
          "log2(1 + delivery_rate x (rtt_mean - lowest_rtt) in packets): log_backlog with the lowest RTT of all"),
      Feature<&Row::delivery_rate_mbps, &Row::max_bandwidth_mbps, &Row::bdp_packets, &Row::rtt_min_ms,
              &Row::min_rtt_ms>(
          "log_least_backlog", {0.0, 12.0, 0.0}, BACKLOG,
          "log2(1 + delivery_rate x (rtt_min - min_rtt) in packets): log_backlog without the jitter of the path"),
      Feature<&Row::rtt_mean_ms, &Row::min_rtt_ms>("log_queueing_delay", {-2.0, 4.0, -2.0},
                                                   FORMULA((double rtt, double min_rtt), Log10(rtt - min_rtt)),
                                                   "log10(rtt_mean - min_rtt in ms): the same for all flows of a link"),
      Feature<&Row::rtt_max_ms, &Row::rtt_min_ms>("log_rtt_spread", {-2.0, 4.0, -2.0},
                                                  FORMULA((double most, double least), Log10(most - least)),
                                                  "log10(rtt_max - rtt_min in ms)"),
      Feature<&Row::rtt_jitter_ms>("log_jitter", {-2.0, 4.0, -2.0}, FORMULA((double jitter), Log10(jitter)),
                                   "log10(rtt_jitter in ms): how much RTTs vary that follow each other"),
      Feature<&Row::delivery_rate_mbps, &Row::max_bandwidth_mbps, &Row::bdp_packets, &Row::rtt_jitter_ms,
              &Row::min_rtt_ms>("log_jitter_backlog", {0.0, 12.0, 0.0},
                                FORMULA((double rate, double bandwidth, double bdp, double jitter, double min_rtt),
                                        Log2(1.0 + rate / bandwidth * bdp * jitter / min_rtt)),
                                "log2(1 + delivery_rate x rtt_jitter in packets): what a flow needs above one BDP not "
                                "to be held up by jitter"),
      Feature<&Row::delivery_rate_mbps, &Row::max_bandwidth_mbps, &Row::bdp_packets, &Row::rtt_max_ms, &Row::rtt_min_ms,
              &Row::min_rtt_ms>("log_spread_backlog", {0.0, 12.0, 0.0},
                                FORMULA((double rate, double bandwidth, double bdp, double most, double least,
                                         double min_rtt),
                                        Log2(1.0 + rate / bandwidth * bdp * (most - least) / min_rtt)),
                                "log2(1 + delivery_rate x (rtt_max - rtt_min) in packets): how much the RTT varies "
                                "within a step, as packets"),
      Feature<&Row::lost_packets, &Row::sent_packets>(
          "loss_rate", {0.0, 1.0, 0.0}, FORMULA((double lost, double sent), lost / sent),
          "lost / sent packets; the packets marked lost may have been sent in earlier steps"),
      Feature<&Row::lost_packets, &Row::sent_packets>(
          "log_loss_rate", {-4.0, 0.0, -4.0},
          FORMULA((double lost, double sent), Log10(lost / sent < 1e-4 ? 1e-4 : lost / sent)),
          "log10(lost / sent packets), at least -4"),
      Feature<&Row::bdp_packets>("log_bdp", {-1.0, 6.0, 0.0}, FORMULA((double bdp), Log10(bdp)),
                                 "log10(bdp in packets): the scale of the path"),
      Feature<&Row::min_rtt_ms>("log_min_rtt", {-1.0, 4.0, 0.0}, FORMULA((double min_rtt), Log10(min_rtt)),
                                "log10(min_rtt in ms): for RTT fairness"),
      Feature<&Row::delivery_rate_mbps>("log_delivery_rate", {-3.0, 4.0, -3.0}, FORMULA((double rate), Log10(rate)),
                                        "log10(delivery_rate in Mbit/s)"),
      Feature<&Row::max_bandwidth_mbps>("log_max_bandwidth", {-3.0, 4.0, -3.0},
                                        FORMULA((double bandwidth), Log10(bandwidth)),
                                        "log10(max_bandwidth in Mbit/s)"),
      Feature<&Row::steered_cwnd_gain>("log_cwnd_gain", {-4.0, 5.0, 0.0}, FORMULA((double gain), Log2(gain)),
                                       "log2 of the cwnd_gain chosen last"),
      Feature<&Row::steered_cwnd_gain, &Row::bdp_packets>(
          "asinh_excess_window", {-8.0, 8.0, 0.0}, FORMULA((double gain, double bdp), Asinh((gain - 1.0) * bdp)),
          "asinh((cwnd_gain chosen last - 1) x bdp): the packets above one BDP that the agent asked for"),
      Feature<&Row::steered_pacing_gain>("log_pacing_gain", {-4.0, 4.0, 0.0}, FORMULA((double gain), Log2(gain)),
                                         "log2 of the pacing_gain chosen last"),
      Feature<&Row::preference>("preference", {0.0, 1.0, kDefaultPreference}, FORMULA((double preference), preference),
                                "what the flow prefers: from 0, the least delay, to 1, its share beside rivals"),
      Feature<&Row::mode>("is_startup", {0.0, 1.0, 0.0}, FORMULA((double mode), mode == 0), "1 in Startup, else 0"),
      Feature<&Row::mode>("is_probe_bw", {0.0, 1.0, 0.0}, FORMULA((double mode), mode == 2),
                          "1 in ProbeBW, where the agent's gains are in force, else 0"),
      Feature<&Row::mode>("is_probe_rtt", {0.0, 1.0, 0.0}, FORMULA((double mode), mode == 3), "1 in ProbeRTT, else 0"),
  };
  const std::size_t count = features.size();
  features.reserve(2 * count);
  for (std::size_t i = 0; i < count; ++i) {
    if (features[i].name != "preference") features.push_back(ByPreference(features[i]));
  }
  return features;
}

std::ptrdiff_t IndexIn(const std::vector<std::string>& columns, const std::string& name) {
  const auto found = std::find(columns.begin(), columns.end(), name);
  if (found == columns.end()) throw std::invalid_argument("the table lacks the column '" + name + "'");
  return std::distance(columns.begin(), found);
}

}  // namespace

PolicyColumns PolicyColumns::AtStart() {
  PolicyColumns columns;
  columns.sent_packets = columns.delivered_packets = columns.lost_packets = columns.in_flight_packets = 0.0;
  columns.send_rate_mbps = columns.delivery_rate_mbps = 0.0;
  return columns;
}

void PolicyColumns::SetMetrics(const Metrics& metrics) {
#define METRIC(name, meaning) name = metrics.Get(Metric::name);
#include "baselines/cc/metrics.def"
#undef METRIC
}

const std::vector<std::pair<const char*, PolicyColumn>>& PolicyColumnsByName() {
  static const std::vector<std::pair<const char*, PolicyColumn>> kColumns = {
#define COLUMN(name) {#name, &PolicyColumns::name},
#include "baselines/cc/policy/columns.def"
#undef COLUMN
  };
  return kColumns;
}

float PolicyFeature::Evaluate(const PolicyColumns& row) const {
  const double value = is_by_preference ? (row.preference - kDefaultPreference) * formula(row) : formula(row);
  return static_cast<float>(std::isfinite(value) ? std::clamp(value, low, high) : neutral);
}

const std::vector<PolicyFeature>& PolicyFeatures() {
  static const std::vector<PolicyFeature> kFeatures = MakeFeatures();
  return kFeatures;
}

const PolicyFeature& FindPolicyFeature(std::string_view name) {
  std::string known;
  for (const PolicyFeature& feature : PolicyFeatures()) {
    if (name == feature.name) return feature;
    known += (known.empty() ? "" : ", ") + std::string(feature.name);
  }
  throw std::invalid_argument("unknown feature '" + std::string(name) + "'; known: " + known);
}

PolicyTable::PolicyTable(const std::vector<std::string>& features, const std::vector<std::string>& columns)
    : columns_(columns.size()), took_part_(IndexIn(columns, "took_part")) {
  for (const std::string& name : features) features_.push_back(&FindPolicyFeature(name));
  for (const auto& [name, column] : PolicyColumnsByName()) {
    const bool is_needed = std::any_of(features_.begin(), features_.end(), [wanted = column](const auto* feature) {
      return std::find(feature->columns.begin(), feature->columns.end(), wanted) != feature->columns.end();
    });
    if (is_needed) needed_.emplace_back(IndexIn(columns, name), column);
  }
}

void PolicyTable::Evaluate(const double* row, std::ptrdiff_t stride, float* values) const {
  if (row[took_part_ * stride] == 0.0) {
    for (const PolicyFeature* feature : features_) *values++ = static_cast<float>(feature->neutral);
    return;
  }
  PolicyColumns columns;
  for (const auto& [index, column] : needed_) columns.*column = row[index * stride];
  for (const PolicyFeature* feature : features_) *values++ = feature->Evaluate(columns);
}

}  // namespace bbrgym
