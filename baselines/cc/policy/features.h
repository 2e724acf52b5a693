#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "baselines/cc/controller.h"

/// What an agent sees of its flow, in an environment or as a policy inside of an engine; policy_features.def has the
/// list.
namespace bbrgym {

/// A row of its own flow as a controller knows it; what it does not know is NaN.
struct PolicyColumns {
#define COLUMN(name) double name = std::numeric_limits<double>::quiet_NaN();
#define METRIC(name, meaning) COLUMN(name)
#define FEATURE(...)
#include "baselines/cc/metrics.def"
#include "baselines/cc/policy/features.def"
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
  const char* formula_text;
  const char* meaning;

  /// The columns that the formula needs.
  std::vector<std::string> Columns() const;

  float Evaluate(const PolicyColumns& columns) const;
};

/// Every feature, in the order of policy_features.def.
const std::vector<PolicyFeature>& PolicyFeatures();

/// Chosen features of flows whose rows are in a table.
class PolicyTable {
 public:
  /// The features' names, and what the table has of a flow: at least their columns, and `took_part`, which is 0 for
  /// a flow that took no part in the step: its features are neutral. Throws std::invalid_argument for what is unknown
  /// or missing.
  PolicyTable(const std::vector<std::string>& features, const std::vector<std::string>& columns);

  /// Writes the features of a flow, of which the table has column i at `row[i * stride]`.
  void Evaluate(const double* row, std::ptrdiff_t stride, float* values) const;

  /// Number of features.
  std::size_t size() const { return features_.size(); }
  /// Number of columns of the table.
  std::size_t columns() const { return columns_; }

 private:
  std::vector<const PolicyFeature*> features_;
  std::size_t columns_;
  std::ptrdiff_t took_part_;
  /// Where the table has what the features need.
  std::vector<std::pair<std::ptrdiff_t, double PolicyColumns::*>> needed_;
};

}  // namespace bbrgym
