#pragma once

#include <limits>
#include <utility>
#include <vector>

#include "baselines/cc/controller.h"

/// What a policy sees of its flow; policy_features.def has the list.
namespace bbrgym {

/// A row of its own flow as a controller knows it; what it does not know is NaN.
struct PolicyColumns {
#define COLUMN(name) double name = std::numeric_limits<double>::quiet_NaN();
#define METRIC(name, meaning) COLUMN(name)
#define FEATURE(name, low, high, neutral, formula)
#include "baselines/cc/metrics.def"
#include "baselines/cc/policy_features.def"
#undef FEATURE
#undef METRIC
#undef COLUMN

  void SetMetrics(const Metrics& metrics);
};

/// Every column by its name.
const std::vector<std::pair<const char*, double PolicyColumns::*>>& PolicyColumnsByName();

/// One number of an observation.
struct PolicyFeature {
  const char* name;
  double low;
  double high;
  double neutral;
  double (*formula)(const PolicyColumns& columns);

  float Evaluate(const PolicyColumns& columns) const;
};

/// Every feature, in the order of policy_features.def.
const std::vector<PolicyFeature>& PolicyFeatures();

}  // namespace bbrgym
