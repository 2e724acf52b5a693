#include "baselines/cc/registry.h"

// Includes the header of every algorithm in controllers.def; CMakeLists.txt writes it.
#include "controller_headers.h"

namespace bbrgym {
namespace {

template <typename Parameters>
std::vector<std::pair<std::string, double>> DefaultsOf(const std::string& name) {
  Parameters parameters;
  ParameterReader reader(name, {});
  parameters.Describe(reader);
  return reader.defaults();
}

}  // namespace

const std::vector<ControllerEntry>& ControllerRegistry() {
  static const std::vector<ControllerEntry> kEntries = {
#define CONTROLLER(name, Class, Parameters, description)                                                              \
  {name, description, DefaultsOf<Parameters>(name), [](const Connection& connection, const ParameterValues& values) { \
     return std::unique_ptr<Controller>(                                                                              \
         std::make_unique<Class>(connection, ReadParameters<Parameters>(name, values)));                              \
   }},
#include "baselines/cc/controllers.def"
#undef CONTROLLER
  };
  return kEntries;
}

const ControllerEntry& FindController(const std::string& name) {
  std::string known;
  for (const ControllerEntry& entry : ControllerRegistry()) {
    if (entry.name == name) return entry;
    known += (known.empty() ? "" : ", ") + entry.name;
  }
  throw ParameterError("unknown algorithm '" + name + "'; known: " + known);
}

std::unique_ptr<Controller> MakeController(const std::string& name, const Connection& connection,
                                           const ParameterValues& parameters) {
  return FindController(name).make(connection, parameters);
}

}  // namespace bbrgym
