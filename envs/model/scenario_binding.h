#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "baselines/cc/controller_file.h"
#include "baselines/cc/policy/network.h"
#include "envs/model/scenario.h"

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

/// Whether a field is a file that Python names by its path.
template <typename Value>
inline constexpr bool kIsLoaded = std::is_same_v<Value, std::shared_ptr<const PolicyNetwork>> ||
                                  std::is_same_v<Value, std::shared_ptr<const ControllerFile>>;

/// The fields of a record in order, with their defaults; a scenario has no flows by default.
template <typename Record>
nanobind::typed<nanobind::dict, nanobind::str, nanobind::object> FieldDefaults() {
  nanobind::dict defaults;
  Record record;
  record.VisitFields([&defaults](const char* name, const auto& value) {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::vector<Flow>>) {
      defaults[name] = nanobind::list();
    } else if constexpr (kIsLoaded<std::decay_t<decltype(value)>>) {
      defaults[name] = nanobind::none();
    } else {
      defaults[name] = nanobind::cast(value);
    }
  });
  return defaults;
}

}  // namespace bbrgym
