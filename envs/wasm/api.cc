// The native engine in WebAssembly, as C functions (docs/playground.md). A host puts text and bytes into memory that
// `allocate` gave, and reads rows where `flow_rows` and `link_row` point, after every call that simulates.
//
// An error is a C++ exception, which has no handler here: its message goes to standard error, and the module traps. The
// host then needs a new instance.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "baselines/cc/policy/network.h"
#include "baselines/cc/registry.h"
#include "envs/model/rows.h"
#include "envs/native/network.h"
#include "envs/wasm/json.h"

#define EXPORT(name) extern "C" __attribute__((export_name(#name)))

namespace bbrgym {
namespace {

/// A scenario that may change while it runs, its network, and the rows of the last step.
struct Simulation {
  std::shared_ptr<Scenario> scenario;
  Network network;
  std::vector<FlowRow> flows;
  LinkRow link;

  void ReadRows() {
    flows.clear();
    for (std::size_t i = 0; i < scenario->flows.size(); ++i) flows.push_back(network.GetFlowRow(i));
    link = network.GetLinkRow();
  }
};

Policies& ThePolicies() {
  static Policies policies;
  return policies;
}

/// Names with commas between them.
template <typename Entries>
std::string Names(const Entries& entries) {
  std::string text;
  for (const auto& entry : entries) text += (text.empty() ? "" : ",") + std::string(entry.name);
  return text;
}

}  // namespace

EXPORT(allocate) void* Allocate(std::size_t bytes) {
  return std::malloc(bytes);
}

EXPORT(release) void Release(void* memory) {
  std::free(memory);
}

/// Columns of flows, columns of the link, and algorithms, in lines.
EXPORT(names) const char* AllNames() {
  static const std::string text = Names(kFlowColumns) + "\n" + Names(kLinkColumns) + "\n" + Names(ControllerRegistry());
  return text.c_str();
}

/// Gives the bytes of a policy (`bbrgym.baselines.policy_file.policy_bytes`) a name, also if another has it.
EXPORT(add_policy) void AddPolicy(const char* name, const char* bytes, std::size_t size) {
  ThePolicies()[name] = PolicyNetwork::Parse({bytes, size});
}

/// Starts a scenario, `Scenario.to_dict()` as JSON.
EXPORT(start) Simulation* Start(const char* json, double seed) {
  auto simulation = std::make_unique<Simulation>();
  simulation->scenario = std::make_shared<Scenario>(JsonReader(json, ThePolicies()).ReadScenario());
  simulation->network.Reset(simulation->scenario, static_cast<std::uint64_t>(seed));
  simulation->ReadRows();
  return simulation.release();
}

EXPORT(end) void End(Simulation* simulation) {
  delete simulation;
}

/// Simulates for `ms`, or to the end. Returns whether it is over.
EXPORT(step) bool Step(Simulation* simulation, double ms) {
  simulation->network.Step(static_cast<Nanoseconds>(ms * 1e6));
  simulation->ReadRows();
  return simulation->network.IsOver();
}

/// Takes another scenario's loss, jitters and changes of the rate that lie ahead.
EXPORT(change) void Change(Simulation* simulation, const char* json) {
  Scenario changed = JsonReader(json, ThePolicies()).ReadScenario();
  Scenario& scenario = *simulation->scenario;
  scenario.loss = changed.loss;
  scenario.rate_schedule = std::move(changed.rate_schedule);
  for (std::size_t i = 0; i < scenario.flows.size(); ++i) scenario.flows[i].jitter_ms = changed.flows.at(i).jitter_ms;
  simulation->network.TakeChanges();
}

EXPORT(time_s) double TimeSeconds(const Simulation* simulation) {
  return static_cast<double>(simulation->network.now()) / 1e9;
}

EXPORT(flow_rows) const FlowRow* FlowRows(const Simulation* simulation) {
  return simulation->flows.data();
}

EXPORT(link_row) const LinkRow* TheLinkRow(const Simulation* simulation) {
  return &simulation->link;
}

}  // namespace bbrgym

// libc++abi for WASI has no exceptions. These names are of the Itanium C++ ABI.
extern "C" {
void* __cxa_allocate_exception(std::size_t size) noexcept {
  return std::malloc(size);
}
void __cxa_free_exception(void* exception) noexcept {
  std::free(exception);
}
[[noreturn]] void __cxa_throw(void* exception, std::type_info* /*type*/, void (* /*destroy*/)(void*)) {
  // All that this code throws has std::exception as its first base.
  std::fputs(static_cast<std::exception*>(exception)->what(), stderr);
  std::abort();
}
}
