#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "baselines/cc/policy/network.h"
#include "envs/model/scenario.h"

/// Makes a Scenario of the plain types of `Scenario.to_dict()`; the policy of a flow is `Agent.to_bytes()`.
namespace bbrgym {

/// `Scenario.to_dict()`.
using PlainScenario = nanobind::typed<nanobind::dict, nanobind::str, nanobind::object>;

template <typename Record>
Record RecordFromDict(const nanobind::dict& plain);

/// Reads the fields of a record that a dict has.
class DictReader {
 public:
  explicit DictReader(const nanobind::dict& plain) : plain_(plain) {}

  template <typename Value>
  void operator()(const char* name, Value& value) {
    if (plain_.contains(name)) value = nanobind::cast<Value>(plain_[name]);
    seen_ += plain_.contains(name) ? 1 : 0;
  }

  void operator()(const char* name, std::vector<Flow>& flows) {
    if (!plain_.contains(name)) return;
    ++seen_;
    flows.clear();
    for (nanobind::handle flow : nanobind::cast<nanobind::list>(plain_[name])) {
      flows.push_back(RecordFromDict<Flow>(nanobind::cast<nanobind::dict>(flow)));
    }
  }

  void operator()(const char* name, std::shared_ptr<const PolicyNetwork>& policy) {
    if (!plain_.contains(name)) return;
    ++seen_;
    nanobind::bytes bytes;
    if (!nanobind::try_cast(plain_[name], bytes)) throw std::invalid_argument("the policy of a flow must be bytes");
    policy = PolicyNetwork::Parse(std::string_view(bytes.c_str(), bytes.size()));
  }

  bool HasReadAll() const { return seen_ == plain_.size(); }

 private:
  nanobind::dict plain_;
  std::size_t seen_ = 0;
};

/// Throws std::invalid_argument (ValueError) if the dict has a field that the record does not have.
template <typename Record>
Record RecordFromDict(const nanobind::dict& plain) {
  Record record;
  DictReader reader(plain);
  record.VisitFields(reader);
  if (!reader.HasReadAll())
    throw std::invalid_argument("a scenario or a flow has a field that the engine does not know");
  return record;
}

/// The fields of a record in order, with their defaults; a scenario has no flows by default.
template <typename Record>
nanobind::typed<nanobind::dict, nanobind::str, nanobind::object> FieldDefaults() {
  nanobind::dict defaults;
  Record record;
  record.VisitFields([&defaults](const char* name, const auto& value) {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::vector<Flow>>) {
      defaults[name] = nanobind::list();
    } else if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::shared_ptr<const PolicyNetwork>>) {
      defaults[name] = nanobind::none();
    } else {
      defaults[name] = nanobind::cast(value);
    }
  });
  return defaults;
}

}  // namespace bbrgym
