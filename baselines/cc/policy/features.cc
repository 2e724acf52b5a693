#include "baselines/cc/policy/features.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <stdexcept>
#include <string_view>

namespace bbrgym {
namespace {

/// log2(x) log10(2): of the C library's logarithms, that to the base 2 takes half the time.
double Log10(double x) {
  return std::log2(x) * 0.30102999566398119521;
}

bool IsOfName(char character) {
  return std::isalnum(static_cast<unsigned char>(character)) != 0 || character == '_';
}

std::ptrdiff_t IndexIn(const std::vector<std::string>& columns, const std::string& name) {
  const auto found = std::find(columns.begin(), columns.end(), name);
  if (found == columns.end()) throw std::invalid_argument("a table without the column '" + name + "'");
  return std::distance(columns.begin(), found);
}

}  // namespace

void PolicyColumns::SetMetrics(const Metrics& metrics) {
#define METRIC(name, meaning) name = metrics.Get(Metric::name);
#include "baselines/cc/metrics.def"
#undef METRIC
}

const std::vector<std::pair<const char*, double PolicyColumns::*>>& PolicyColumnsByName() {
  static const std::vector<std::pair<const char*, double PolicyColumns::*>> kColumns = {
#define COLUMN(name) {#name, &PolicyColumns::name},
#define METRIC(name, meaning) COLUMN(name)
#define FEATURE(...)
#include "baselines/cc/metrics.def"
#include "baselines/cc/policy/features.def"
#undef FEATURE
#undef METRIC
#undef COLUMN
  };
  return kColumns;
}

std::vector<std::string> PolicyFeature::Columns() const {
  std::vector<std::string> columns;
  const std::string_view text = formula_text;
  for (std::size_t at = text.find("c."); at != std::string_view::npos; at = text.find("c.", at + 1)) {
    if (at > 0 && IsOfName(text[at - 1])) continue;
    const auto begin = text.begin() + static_cast<std::ptrdiff_t>(at) + 2;
    const std::string name(begin, std::find_if_not(begin, text.end(), IsOfName));
    if (std::find(columns.begin(), columns.end(), name) == columns.end()) columns.push_back(name);
  }
  return columns;
}

float PolicyFeature::Evaluate(const PolicyColumns& columns) const {
  const double value = formula(columns);
  return static_cast<float>(std::isfinite(value) ? std::clamp(value, low, high) : neutral);
}

const std::vector<PolicyFeature>& PolicyFeatures() {
  static const std::vector<PolicyFeature> kFeatures = {
#define COLUMN(name)
#define FEATURE(name, low, high, neutral, formula, meaning) \
  {#name, low, high, neutral, [](const PolicyColumns& c) -> double { return formula; }, #formula, meaning},
#include "baselines/cc/policy/features.def"
#undef FEATURE
#undef COLUMN
  };
  return kFeatures;
}

PolicyTable::PolicyTable(const std::vector<std::string>& features, const std::vector<std::string>& columns)
    : columns_(columns.size()), took_part_(IndexIn(columns, "took_part")) {
  for (const std::string& name : features) {
    const auto& known = PolicyFeatures();
    const auto found =
        std::find_if(known.begin(), known.end(), [&](const auto& feature) { return name == feature.name; });
    if (found == known.end()) throw std::invalid_argument("no feature '" + name + "'");
    features_.push_back(&*found);
  }
  for (const auto& [name, member] : PolicyColumnsByName()) {
    const bool is_needed = std::any_of(features_.begin(), features_.end(), [&](const PolicyFeature* feature) {
      const std::vector<std::string> its = feature->Columns();
      return std::find(its.begin(), its.end(), name) != its.end();
    });
    if (is_needed) needed_.emplace_back(IndexIn(columns, name), member);
  }
}

void PolicyTable::Evaluate(const double* row, std::ptrdiff_t stride, float* values) const {
  if (row[took_part_ * stride] == 0.0) {
    for (const PolicyFeature* feature : features_) *values++ = static_cast<float>(feature->neutral);
    return;
  }
  PolicyColumns columns;
  for (const auto& [index, member] : needed_) columns.*member = row[index * stride];
  for (const PolicyFeature* feature : features_) *values++ = feature->Evaluate(columns);
}

}  // namespace bbrgym
