#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "baselines/cc/controller_file.h"
#include "baselines/cc/policy/network.h"
#include "envs/model/scenario.h"
#include "envs/model/scenario_fields.h"

/// Makes a Scenario of the plain types of `Scenario.to_dict()`; the policy of a flow is
/// `Agent.to_bytes()`, its file the path of a shared object.
namespace bbrgym {

/// `Scenario.to_dict()`.
using PlainScenario = nanobind::typed<nanobind::dict, nanobind::str, nanobind::object>;

template <typename Record>
Record RecordFromDict(const nanobind::dict& plain);

/// Visits the fields of a record and sets the one of a name.
class FieldReader {
 public:
  FieldReader(std::string_view name, nanobind::handle value) : name_(name), value_(value) {}

  template <typename Value>
  void operator()(std::string_view name, Value& field) {
    if (name != name_) return;
    Read(field);
    has_read_ = true;
  }

  bool HasRead() const { return has_read_; }

 private:
  template <typename Value>
  void Read(Value& field) {
    field = nanobind::cast<Value>(value_);
  }

  void Read(std::vector<Flow>& flows) {
    flows.clear();
    for (nanobind::handle flow : nanobind::cast<nanobind::list>(value_)) {
      flows.push_back(RecordFromDict<Flow>(nanobind::cast<nanobind::dict>(flow)));
    }
  }

  void Read(std::shared_ptr<const PolicyNetwork>& policy) {
    nanobind::bytes bytes;
    if (!nanobind::try_cast(value_, bytes)) throw std::invalid_argument("the policy of a flow must be bytes");
    policy = PolicyNetwork::Parse(std::string_view(bytes.c_str(), bytes.size()));
  }

  void Read(std::shared_ptr<const ControllerFile>& file) {
    file = ControllerFile::Load(nanobind::cast<std::string>(value_));
  }

  std::string_view name_;
  nanobind::handle value_;
  bool has_read_ = false;
};

/// Throws std::invalid_argument (ValueError) if the dict has a field that the record does not have.
template <typename Record>
Record RecordFromDict(const nanobind::dict& plain) {
  Record record;
  // Field by field of the dict, not of the record: most have their default and are not in it.
  for (const auto& [name, value] : plain) {
    FieldReader reader(nanobind::cast<std::string_view>(name), value);
    record.VisitFields(reader);
    if (reader.HasRead()) continue;
    throw std::invalid_argument("a scenario or a flow has a field that the engine does not know: " +
                                nanobind::cast<std::string>(name));
  }
  return record;
}

/// What Python is told of a field: its default, the kind of its values ("number", "integer", "name", "schedule", or ""
/// for any other), whether it can be None, its bounds by the names of `bbrgym.checks.Bounds`, the names that it can
/// have with ", " between them, and its meaning.
using FieldEntry =
    std::tuple<nanobind::object, std::string, bool, std::map<std::string, double>, std::string, std::string>;

template <typename Value>
struct FieldKind {
  static constexpr bool kIsOptional = false;
  static constexpr const char* Of(const Bounds& /*bounds*/) {
    if constexpr (std::is_same_v<Value, double>) return "number";
    if constexpr (std::is_same_v<Value, std::int64_t>) return "integer";
    if constexpr (std::is_same_v<Value, Schedule>) return "schedule";
    return "";
  }
  static nanobind::object Default(const Value& value) { return nanobind::cast(value); }
};

template <>
struct FieldKind<std::string> {
  static constexpr bool kIsOptional = false;
  static constexpr const char* Of(const Bounds& bounds) { return *bounds.names != 0 ? "name" : ""; }
  static nanobind::object Default(const std::string& value) { return nanobind::cast(value); }
};

template <typename Value>
struct FieldKind<std::optional<Value>> {
  static constexpr bool kIsOptional = true;
  static constexpr const char* Of(const Bounds& bounds) { return FieldKind<Value>::Of(bounds); }
  static nanobind::object Default(const std::optional<Value>& value) { return nanobind::cast(value); }
};

/// A file that Python names by its path.
template <typename Loaded>
struct FieldKind<std::shared_ptr<const Loaded>> {
  static constexpr bool kIsOptional = true;
  static constexpr const char* Of(const Bounds& /*bounds*/) { return ""; }
  static nanobind::object Default(const std::shared_ptr<const Loaded>& /*value*/) { return nanobind::none(); }
};

template <>
struct FieldKind<std::vector<Flow>> {
  static constexpr bool kIsOptional = false;
  static constexpr const char* Of(const Bounds& /*bounds*/) { return ""; }
  static nanobind::object Default(const std::vector<Flow>& /*value*/) { return nanobind::list(); }
};

/// The fields of a record in order; `described` are their descriptions.
template <typename Record>
nanobind::typed<nanobind::dict, std::string, FieldEntry> FieldEntries(std::span<const FieldDescription> described) {
  nanobind::typed<nanobind::dict, std::string, FieldEntry> entries;
  Record record;
  auto description = described.begin();
  record.VisitFields([&](const char* name, const auto& value) {
    using Kind = FieldKind<std::decay_t<decltype(value)>>;
    const auto& [described_name, bounds, meaning] = *description++;
    std::map<std::string, double> numbers;
    if (std::isfinite(bounds.low)) numbers[bounds.has_low ? "at_least" : "above"] = bounds.low;
    if (std::isfinite(bounds.high)) numbers[bounds.has_high ? "at_most" : "below"] = bounds.high;
    entries[name] = nanobind::cast(
        FieldEntry(Kind::Default(value), Kind::Of(bounds), Kind::kIsOptional, numbers, bounds.names, meaning));
  });
  return entries;
}

}  // namespace bbrgym
