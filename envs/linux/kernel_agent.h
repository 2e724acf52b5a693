#pragma once

#include <optional>
#include <string>

#include "baselines/cc/policy/network.h"
#include "envs/linux/bpf/agent_maps.h"
#include "envs/linux/file_descriptor.h"
#include "envs/model/scenario.h"

namespace bbrgym {

/// The BPF program agent.bpf.c in the kernel: a congestion control with a name of its own for the sockets that choose
/// it. Nothing of it outlives this object, or this process, however it ends.
class KernelAgent {
 public:
  /// Loads a compiled program. Throws std::runtime_error that says what the kernel refuses.
  explicit KernelAgent(const std::string& object_file);
  ~KernelAgent();
  KernelAgent(const KernelAgent&) = delete;
  KernelAgent& operator=(const KernelAgent&) = delete;

  /// Makes a socket use it, and returns its first gains. A policy of the flow decides in the kernel from then on. To be
  /// called before the socket connects. Throws std::invalid_argument if it has a parameter of a model that the kernel
  /// does not have, or a policy that cannot be in integers; std::runtime_error if the kernel refuses.
  agent_input Control(int socket, const Flow& flow) const;
  /// Throws std::runtime_error.
  void Write(int socket, const agent_input& input) const;
  /// The RTTs are those of this step (`agent_input::step`). Nothing before the connection.
  std::optional<agent_state> Read(int socket, unsigned step) const;

 private:
  void Update(int map, int socket, const void* value) const;

  std::string name_;
  void* object_ = nullptr;
  void* attached_ = nullptr;  // by libbpf, since its version 1.2
  FileDescriptor link_;       // before
  int inputs_ = -1;
  int policies_ = -1;
  int states_ = -1;
};

/// The gains, within the bounds of the controller `agent`; NaN leaves what they were.
void SetGains(double cwnd_gain, double pacing_gain, agent_input& input);

/// Returns a policy in integers, for a flow with this preference. Throws std::invalid_argument that says what it must
/// be.
fixed_policy FixedPolicy(const PolicyNetwork& policy, double preference);

}  // namespace bbrgym
