#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "baselines/cc/controller.h"

/// What an agent sees of its flow, in an environment and as a policy in an engine. features.cc has the list.
namespace bbrgym {

/// The row of a flow as its controller knows it; what it does not know is NaN.
struct PolicyColumns {
#define COLUMN(name) double name = std::numeric_limits<double>::quiet_NaN();
#include "baselines/cc/policy/columns.def"
#undef COLUMN

  /// When the connection is set up: nothing has happened yet.
  static PolicyColumns AtStart();

  void SetMetrics(const Metrics& metrics);
};

using PolicyColumn = double PolicyColumns::*;

/// Every column with its name.
const std::vector<std::pair<const char*, PolicyColumn>>& PolicyColumnsByName();

/// One number of an observation: a formula in double precision, clipped to [low, high]. It is `neutral` where the
/// formula has no finite value: a column is NaN, a division by zero, a logarithm of 0.
struct PolicyFeature {
  std::string name;
  double low;
  double high;
  double neutral;
  /// What the formula is computed from.
  std::vector<PolicyColumn> columns;
  double (*formula)(const PolicyColumns& row);
  /// The formula in C99: parameters, one per column, and body.
  std::string code;
  std::string meaning;
  /// Whether the formula's value is multiplied by the preference less its default; `code` says so.
  bool is_by_preference;

  float Evaluate(const PolicyColumns& row) const;
};

/// Every feature.
const std::vector<PolicyFeature>& PolicyFeatures();

/// Returns the feature called `name`. Throws std::invalid_argument for an unknown name.
const PolicyFeature& FindPolicyFeature(std::string_view name);

/// Computes chosen features of flows whose rows are in a table.
class PolicyTable {
 public:
  /// The names of the features, and of what the table has per flow: at least the columns of the features, and
  /// `took_part`, which is 0 for a flow that took no part in the step: its features are neutral. Throws
  /// std::invalid_argument for an unknown feature or a missing column.
  PolicyTable(const std::vector<std::string>& features, const std::vector<std::string>& columns);

  /// Writes the features of a flow. `row[i * stride]` is column i of the table.
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
  std::vector<std::pair<std::ptrdiff_t, PolicyColumn>> needed_;
};

}  // namespace bbrgym
