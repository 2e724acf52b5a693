#include "baselines/cc/policy_features.h"

#include <algorithm>
#include <cmath>

namespace bbrgym {

void PolicyColumns::SetMetrics(const Metrics& metrics) {
#define METRIC(name, meaning) name = metrics.Get(Metric::name);
#include "baselines/cc/metrics.def"
#undef METRIC
}

const std::vector<std::pair<const char*, double PolicyColumns::*>>& PolicyColumnsByName() {
  static const std::vector<std::pair<const char*, double PolicyColumns::*>> kColumns = {
#define COLUMN(name) {#name, &PolicyColumns::name},
#define METRIC(name, meaning) COLUMN(name)
#define FEATURE(name, low, high, neutral, formula)
#include "baselines/cc/metrics.def"
#include "baselines/cc/policy_features.def"
#undef FEATURE
#undef METRIC
#undef COLUMN
  };
  return kColumns;
}

float PolicyFeature::Evaluate(const PolicyColumns& columns) const {
  const double value = formula(columns);
  return static_cast<float>(std::isfinite(value) ? std::clamp(value, low, high) : neutral);
}

const std::vector<PolicyFeature>& PolicyFeatures() {
  static const std::vector<PolicyFeature> kFeatures = {
#define COLUMN(name)
#define FEATURE(name, low, high, neutral, formula) \
  {#name, low, high, neutral, [](const PolicyColumns& c) -> double { return formula; }},
#include "baselines/cc/policy_features.def"
#undef FEATURE
#undef COLUMN
  };
  return kFeatures;
}

}  // namespace bbrgym
