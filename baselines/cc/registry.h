#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "baselines/cc/controller.h"
#include "baselines/cc/parameters.h"

namespace bbrgym {

/// One line of controllers.def.
struct ControllerEntry {
  std::string name;
  std::string description;
  std::vector<std::pair<std::string, double>> defaults;
  std::unique_ptr<Controller> (*make)(const Connection& connection, const ParameterValues& parameters);
};

/// Every registered controller, in the order of controllers.def.
const std::vector<ControllerEntry>& ControllerRegistry();

/// Returns the entry called `name`. Throws `ParameterError` for an unknown name.
const ControllerEntry& FindController(const std::string& name);

/// Makes the controller called `name`. Throws `ParameterError` for an unknown name, parameter or value.
std::unique_ptr<Controller> MakeController(const std::string& name, const Connection& connection,
                                           const ParameterValues& parameters = {});

}  // namespace bbrgym
