#pragma once

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "baselines/cc/policy/network.h"
#include "envs/model/scenario.h"

namespace bbrgym {

/// Policies by the names that flows give.
using Policies = std::map<std::string, std::shared_ptr<const PolicyNetwork>>;

/// Reads the JSON of `Scenario.to_dict()`, in which the policy of a flow is a name. It walks over the text once and
/// sets fields by `VisitFields`, as scenario_binding.h does for dicts.
class JsonReader {
 public:
  JsonReader(const char* text, const Policies& policies) : at_(text), policies_(policies) {}

  /// Throws std::invalid_argument for what is no scenario.
  Scenario ReadScenario() {
    Scenario scenario;
    ReadRecord(scenario);
    SkipSpace();
    if (*at_ != '\0') Refuse("the end");
    return scenario;
  }

 private:
  template <typename Record>
  void ReadRecord(Record& record) {
    ReadMembers([&](const std::string& name) {
      bool has_read = false;
      record.VisitFields([&](std::string_view field, auto& value) {
        if (field != name) return;
        Read(value);
        has_read = true;
      });
      if (has_read) return;
      throw std::invalid_argument("a scenario or a flow has a field that the engine does not know: " + name);
    });
  }

  template <typename Member>
  void ReadMembers(Member&& read_member) {
    Expect('{');
    if (Take('}')) return;
    do {
      std::string name;
      Read(name);
      Expect(':');
      read_member(name);
    } while (Take(','));
    Expect('}');
  }

  void Read(double& value) {
    char* end = nullptr;
    value = std::strtod(at_, &end);
    if (end == at_) Refuse("a number");
    at_ = end;
  }

  void Read(std::int64_t& value) {
    double number = 0.0;
    Read(number);
    value = static_cast<std::int64_t>(number);
    if (static_cast<double>(value) != number) Refuse("a whole number before this");
  }

  void Read(std::string& value) {
    Expect('"');
    value.clear();
    for (; *at_ != '\0' && *at_ != '"'; ++at_) {
      if (*at_ == '\\') Refuse("text without escapes");  // no name has any
      value += *at_;
    }
    Expect('"');
  }

  template <typename Value>
  void Read(std::optional<Value>& value) {
    value.reset();
    if (TakeNull()) return;
    Read(value.emplace());
  }

  template <typename Value>
  void Read(std::vector<Value>& values) {
    values.clear();
    Expect('[');
    if (Take(']')) return;
    do {
      Read(values.emplace_back());
    } while (Take(','));
    Expect(']');
  }

  void Read(std::pair<double, double>& pair) {
    Expect('[');
    Read(pair.first);
    Expect(',');
    Read(pair.second);
    Expect(']');
  }

  void Read(std::map<std::string, double>& values) {
    values.clear();
    ReadMembers([&](const std::string& name) { Read(values[name]); });
  }

  void Read(Flow& flow) { ReadRecord(flow); }

  void Read(std::shared_ptr<const PolicyNetwork>& policy) {
    if (TakeNull()) return;
    std::string name;
    Read(name);
    const auto found = policies_.find(name);
    if (found == policies_.end()) throw std::invalid_argument("no policy is called '" + name + "'");
    policy = found->second;
  }

  void Read(std::shared_ptr<const ControllerFile>& /*file*/) {
    if (!TakeNull()) throw std::invalid_argument("controllers in C do not run in WebAssembly");
  }

  void SkipSpace() {
    while (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t') ++at_;
  }

  bool Take(char wanted) {
    SkipSpace();
    if (*at_ != wanted) return false;
    ++at_;
    return true;
  }

  bool TakeNull() {
    SkipSpace();
    if (!std::string_view(at_).starts_with("null")) return false;
    at_ += 4;
    return true;
  }

  void Expect(char wanted) {
    if (!Take(wanted)) Refuse(std::string(1, wanted));
  }

  [[noreturn]] void Refuse(const std::string& wanted) const {
    throw std::invalid_argument("JSON must have " + wanted + " here: " + std::string(at_).substr(0, 20));
  }

  const char* at_;
  const Policies& policies_;
};

}  // namespace bbrgym
