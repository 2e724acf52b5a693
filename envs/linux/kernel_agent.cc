#include "envs/linux/kernel_agent.h"

#include <dlfcn.h>
#include <linux/bpf.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "baselines/cc/agent.h"
#include "baselines/cc/elementary.h"
#include "envs/linux/network_namespace.h"

namespace bbrgym {

namespace {

// include/uapi/linux/bpf.h of Linux 6.4; older headers lack them.
constexpr int kAttachStructOps = 44;         // BPF_STRUCT_OPS
constexpr std::uint32_t kHasLink = 1 << 13;  // BPF_F_LINK

/// What libbpf warned of; it prints for the whole process.
std::string warnings;

int Print(int level, const char* format, va_list arguments) {
  if (level > 0) return 0;  // LIBBPF_WARN
  va_list again;
  va_copy(again, arguments);
  std::vector<char> text(static_cast<std::size_t>(std::max(vsnprintf(nullptr, 0, format, again), 0)) + 1);
  va_end(again);
  vsnprintf(text.data(), text.size(), format, arguments);
  warnings += text.data();
  return 0;
}

/// The line that has the reason: the verifier's last one, or what libbpf missed.
std::string Reason() {
  std::istringstream lines(warnings);
  std::string reason;
  for (std::string line; std::getline(lines, line);) {
    const auto has = [&line](const char* text) { return line.find(text) != std::string::npos; };
    const bool is_frame =
        has("LOAD LOG --") || has("failed to load") || has("load failed") || line.starts_with("processed ");
    if (!line.empty() && !is_frame) reason = line;
  }
  return reason.starts_with("libbpf: ") ? reason.substr(8) : reason;
}

/// The functions of libbpf 1 that are used here, loaded when they are needed.
struct Libbpf {
  int (*set_print)(int (*)(int, const char*, va_list));
  std::uint32_t (*minor_version)();
  void* (*open_mem)(const void*, std::size_t, const void*);
  int (*load)(void*);
  void (*close)(void*);
  void* (*find_map)(const void*, const char*);
  int (*map_fd)(const void*);
  int (*set_map_flags)(void*, std::uint32_t);
  void* (*attach)(const void*);
  void (*disconnect)(void*);
  int (*destroy)(void*);
  int (*lookup)(int, const void*, void*);
  int (*update)(int, const void*, const void*, std::uint64_t);

  Libbpf() {
    void* library = dlopen("libbpf.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error("libbpf 1 is missing: " + std::string(dlerror()));
    const auto load_function = [library](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr) throw std::runtime_error("libbpf has no " + std::string(name));
    };
    load_function(set_print, "libbpf_set_print");
    load_function(minor_version, "libbpf_minor_version");
    load_function(open_mem, "bpf_object__open_mem");
    load_function(load, "bpf_object__load");
    load_function(close, "bpf_object__close");
    load_function(find_map, "bpf_object__find_map_by_name");
    load_function(map_fd, "bpf_map__fd");
    load_function(set_map_flags, "bpf_map__set_map_flags");
    load_function(attach, "bpf_map__attach_struct_ops");
    load_function(disconnect, "bpf_link__disconnect");
    load_function(destroy, "bpf_link__destroy");
    load_function(lookup, "bpf_map_lookup_elem");
    load_function(update, "bpf_map_update_elem");
    set_print(Print);
  }
};

const Libbpf& Bpf() {
  static const Libbpf kLibbpf;
  return kLibbpf;
}

[[noreturn]] void Refuse(const std::string& what) {
  const int error = errno;
  const std::string reason = Reason();
  throw std::runtime_error("the kernel's TCP cannot be steered: " + what + ": " + std::strerror(error) +
                           (reason.empty() ? "" : ": " + reason));
}

std::string RandomName() {
  std::random_device random;
  char name[sizeof AGENT_NAME];
  std::snprintf(name, sizeof name, "bbrgym_%08x", random());
  return name;
}

/// Returns the compiled program with its name in place of AGENT_NAME.
std::string Named(const std::string& file, const std::string& name) {
  std::ifstream stream(file, std::ios::binary);
  std::string code((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  const std::size_t place = code.find(std::string(AGENT_NAME, sizeof AGENT_NAME));
  if (place == std::string::npos) throw std::runtime_error(file + " is not a compiled agent.bpf.c");
  return code.replace(place, name.size(), name);
}

}  // namespace

KernelAgent::KernelAgent(const std::string& object_file) : name_(RandomName()) {
  const Libbpf& bpf = Bpf();
  const std::string code = Named(object_file, name_);
  warnings.clear();
  object_ = bpf.open_mem(code.data(), code.size(), nullptr);
  if (object_ == nullptr) Refuse("libbpf does not read agent.bpf.c");
  try {
    void* const operations = bpf.find_map(object_, "agent");
    // With a link, which ends with the last descriptor of it, in place of a registration that stays.
    bpf.set_map_flags(operations, kHasLink);
    if (bpf.load(object_) != 0) Refuse("the kernel does not load agent.bpf.c");
    attached_ = bpf.attach(operations);
    if (attached_ == nullptr) Refuse("the kernel does not register agent.bpf.c");
    if (bpf.minor_version() < 2) {  // it has only given the functions to the map
      bpf.disconnect(attached_);
      bpf.destroy(std::exchange(attached_, nullptr));
      bpf_attr attributes{};
      attributes.link_create.prog_fd = static_cast<std::uint32_t>(bpf.map_fd(operations));
      attributes.link_create.attach_type = kAttachStructOps;
      link_ = FileDescriptor(static_cast<int>(syscall(SYS_bpf, BPF_LINK_CREATE, &attributes, sizeof attributes)));
      if (link_.get() < 0) Refuse("the kernel does not register agent.bpf.c");
    }
    const auto map = [&](const char* name) { return bpf.map_fd(bpf.find_map(object_, name)); };
    inputs_ = map("inputs");
    policies_ = map("policies");
    states_ = map("states");
  } catch (...) {
    bpf.close(object_);
    throw;
  }
}

KernelAgent::~KernelAgent() {
  if (attached_ != nullptr) Bpf().destroy(attached_);
  Bpf().close(object_);
}

agent_input KernelAgent::Control(int socket, const Flow& flow) const {
  constexpr double kUnchanged = std::numeric_limits<double>::quiet_NaN();
  agent_input input{};
  SetGains(AgentParameters{}.cwnd_gain, AgentParameters{}.pacing_gain, input);
  for (const auto& [name, value] : flow.parameters) {
    if (name == "cwnd_gain") {
      SetGains(value, kUnchanged, input);
    } else if (name == "pacing_gain") {
      SetGains(kUnchanged, value, input);
    } else if (name != "is_bbr_model" && name != "preference") {
      throw std::invalid_argument(
          "a flow over the kernel's TCP has the kernel's model of the path: it cannot have the "
          "parameter " +
          name);
    }
  }
  if (flow.policy) {
    const auto of_flow = flow.parameters.find("is_bbr_model");
    if (!flow.policy->is_bbr_model() && (of_flow == flow.parameters.end() || of_flow->second == 0.0)) {
      throw std::invalid_argument(
          "a policy over the kernel's TCP has BBR's own model of the path: it must be trained on it "
          "(action.model=bbr), "
          "or its flow must say so (parameters: {is_bbr_model: 1})");
    }
    const auto given = flow.parameters.find("preference");
    const double preference = given == flow.parameters.end() ? AgentParameters{}.preference : given->second;
    const fixed_policy policy = FixedPolicy(*flow.policy, preference);
    Update(policies_, socket, &policy);
  }
  Write(socket, input);
  if (setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name_.data(), static_cast<socklen_t>(name_.size())) != 0) {
    ThrowErrno("cannot choose the congestion control " + name_);
  }
  return input;
}

void KernelAgent::Write(int socket, const agent_input& input) const {
  Update(inputs_, socket, &input);
}

void KernelAgent::Update(int map, int socket, const void* value) const {
  if (Bpf().update(map, &socket, value, BPF_ANY) != 0) ThrowErrno("cannot write to agent.bpf.c");
}

std::optional<agent_state> KernelAgent::Read(int socket, unsigned step) const {
  agent_state state{};
  if (Bpf().lookup(states_, &socket, &state) != 0) return std::nullopt;
  if (state.step != step) state.rtts.count = 0;  // no ACK has come since it began
  return state;
}

void SetGains(double cwnd_gain, double pacing_gain, agent_input& input) {
  const auto fixed_gain = [](double gain) { return static_cast<unsigned>(std::nearbyint(gain * ONE_Q24)); };
  if (!std::isnan(cwnd_gain))
    input.cwnd_gain_q24 = fixed_gain(std::clamp(cwnd_gain, kLeastGains.cwnd, kMostGains.cwnd));
  if (!std::isnan(pacing_gain)) {
    input.pacing_gain_q24 = fixed_gain(std::clamp(pacing_gain, kLeastGains.pacing, kMostGains.pacing));
  }
}

fixed_policy FixedPolicy(const PolicyNetwork& network, double preference) {
  const auto check = [](bool is_met, const std::string& must) {
    if (!is_met) throw std::invalid_argument("a policy over the kernel's TCP must " + must);
  };
  constexpr const char* kNames[] = {
#define POLICY_NAME(name, lowest, highest, neutral, value) #name,
      POLICY_FEATURES(POLICY_NAME)
#undef POLICY_NAME
  };
  constexpr double kMostWeight = 512.0;  // so that no sum overflows
  const auto q20 = [&](double value) {
    check(std::abs(value) < kMostWeight, "have weights below 512, got " + std::to_string(value));
    return static_cast<int>(std::nearbyint(value * ONE_Q20));
  };
  const auto& layers = network.layers();
  check(network.IsPlain(), "have no LSTM, no skip, no history, tanh between its layers and clipped actions");
  check(network.interval() > 0, "decide every so many ms, not RTTs");
  check(layers.size() <= 2, "have at most one hidden layer");
  check(layers[0].outputs <= POLICY_UNITS, "have at most " + std::to_string(POLICY_UNITS) + " hidden units");
  fixed_policy policy{};
  policy.interval_us = static_cast<natural>(std::max<Nanoseconds>(network.interval() / 1000, 1));
  policy.units = layers.size() == 2 ? static_cast<int>(layers[0].outputs) : 0;
  static_assert(AgentParameters{}.preference == 0.25, "fixed_policy.h knows it");
  policy.preference = q20(preference - AgentParameters{}.preference);
  for (std::size_t unit = 0; unit < layers[0].outputs; ++unit) policy.bias[unit] = q20(layers[0].bias[unit]);
  for (std::size_t input = 0; input < network.features().size(); ++input) {
    const std::string name = network.features()[input]->name;
    constexpr std::string_view kByPreference = "_by_preference";
    const bool is_by_preference = name.ends_with(kByPreference);
    const std::string base = name.substr(0, name.size() - (is_by_preference ? kByPreference.size() : 0));
    const auto found = std::find(std::begin(kNames), std::end(kNames), base);
    const bool is_constant = name == "preference";
    check(found != std::end(kNames) || is_constant, "observe features that agent.bpf.c has, got " + name);
    const auto column = found - std::begin(kNames) + (is_by_preference ? POLICY_FEATURE_COUNT : 0);
    for (std::size_t unit = 0; unit < layers[0].outputs; ++unit) {
      const double weight = layers[0].weights[input * layers[0].outputs + unit];
      // A feature that is observed twice counts twice.
      (is_constant ? policy.bias[unit] : policy.weights[unit][column]) +=
          q20(is_constant ? weight * preference : weight);
    }
  }
  for (std::size_t output = 0; layers.size() == 2 && output < 2; ++output) {
    for (std::size_t unit = 0; unit < layers[1].inputs; ++unit) {
      policy.output_weights[output][unit] = q20(layers[1].weights[unit * layers[1].outputs + output]);
    }
    policy.output_bias[output] = q20(layers[1].bias[output]);
  }
  const GainMap& map = network.gain_map();
  const double above = map.cwnd_scale == CwndScale::kExcess ? 1.0 : 0.0;
  const auto span = [&](double low, double high) { return q20(Log2(high / low)); };
  policy.cwnd_low = q20(Log2(map.cwnd.low - above));
  policy.cwnd_span = span(map.cwnd.low - above, map.cwnd.high - above);
  policy.pacing_low = q20(Log2(map.pacing.low));
  policy.pacing_span = span(map.pacing.low, map.pacing.high);
  policy.cwnd_scale = map.cwnd_scale == CwndScale::kRatio     ? SCALE_RATIO
                      : map.cwnd_scale == CwndScale::kPackets ? SCALE_PACKETS
                                                              : SCALE_EXCESS;
  agent_input bounds{};
  for (const int i : {0, 1}) {
    SetGains(i == 0 ? map.cwnd.low : map.cwnd.high, i == 0 ? map.pacing.low : map.pacing.high, bounds);
    policy.cwnd_gain_q24[i] = bounds.cwnd_gain_q24;
    policy.pacing_gain_q24[i] = bounds.pacing_gain_q24;
  }
  return policy;
}

}  // namespace bbrgym
