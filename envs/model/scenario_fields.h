#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "envs/model/scenario.h"

/// What envs/scenario.def says about the fields beside their types and defaults.
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
  constexpr bool Have(double number) const {
    return (has_low ? number >= low : number > low) && (has_high ? number <= high : number < high);
  }
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
