#pragma once

#include <limits>

/// What envs/scenario.def says about the fields beside their types and defaults. Python checks the bounds.
namespace bbrgym {

/// The numbers, or the names, that a field can have.
struct Bounds {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool has_low = true;
  bool has_high = true;
  /// The names with ", " between them; empty for any other field.
  const char* names = "";

  constexpr Bounds AtMost(double bound) const { return {low, bound, has_low, true, names}; }
  constexpr Bounds Below(double bound) const { return {low, bound, has_low, false, names}; }
};

struct FieldDescription {
  const char* name;
  Bounds bounds;
  const char* meaning;
};

namespace bounds {

constexpr Bounds Any() {
  return {};
}
constexpr Bounds AtLeast(double bound) {
  return {.low = bound};
}
constexpr Bounds Above(double bound) {
  return {.low = bound, .has_low = false};
}
constexpr Bounds OneOf(const char* names) {
  return {.names = names};
}

inline constexpr FieldDescription kFlowFields[] = {
#define FLOW_FIELD(type, name, default_value, bounds, meaning) {#name, bounds, meaning},
#include "envs/scenario.def"
};

inline constexpr FieldDescription kScenarioFields[] = {
#define SCENARIO_FIELD(type, name, default_value, bounds, meaning) {#name, bounds, meaning},
#include "envs/scenario.def"
};

}  // namespace bounds

using bounds::kFlowFields;
using bounds::kScenarioFields;

}  // namespace bbrgym
