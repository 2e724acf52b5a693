#include "baselines/cc/registry.h"

#include "baselines/cc/agent.h"
#include "baselines/cc/bbq.h"
#include "baselines/cc/bbr.h"
#include "baselines/cc/bbr2.h"
#include "baselines/cc/bbr_acd.h"
#include "baselines/cc/bbr_acd_ns3_published.h"
#include "baselines/cc/bbr_acw.h"
#include "baselines/cc/cubic.h"
#include "baselines/cc/da_bbr.h"
#include "baselines/cc/ebcc.h"
#include "baselines/cc/f_bbr2.h"
#include "baselines/cc/newreno.h"
#include "baselines/cc/policy/policy.h"

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

std::unique_ptr<Controller> MakeController(const std::string& name, const Connection& connection,
                                           const ParameterValues& parameters) {
  std::string known;
  for (const ControllerEntry& entry : ControllerRegistry()) {
    if (entry.name == name) return entry.make(connection, parameters);
    known += (known.empty() ? "" : ", ") + entry.name;
  }
  throw ParameterError("no algorithm '" + name + "'; known: " + known);
}

}  // namespace bbrgym
