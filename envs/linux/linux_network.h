#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "envs/linux/clock.h"
#include "envs/linux/command_flow.h"
#include "envs/linux/emulator.h"
#include "envs/linux/network_namespace.h"
#include "envs/linux/tcp_flow.h"
#include "envs/linux/udp_receiver.h"
#include "envs/linux/udp_sender.h"
#include "envs/model/scenario.h"
#include "envs/transport/flow_row.h"

namespace bbrgym {

/// One Scenario in real time on this machine's kernel: senders in one network namespace, receivers in another, and an
/// Emulator between them. Flows of our algorithms run over UDP; flows `linux-NAME` are the kernel's own TCP; both
/// ends of a flow `command` are somebody else's programs.
///
/// A step ends at its time by the clock, which started with the episode. What happens between two steps belongs to the
/// second one. If it is asked for after its end, it lasts as many times as long as it needs to end in the future.
class LinuxNetwork {
 public:
  /// What only real time has, since the beginning of the episode.
  struct Timing {
    Lateness departures;
    /// By how much the latest step was asked for after the end of the one before.
    Nanoseconds latest_decision = 0;
    /// How many steps a decision came too late for.
    std::uint64_t missed_steps = 0;
    /// By how much the latest step ended after its time.
    Nanoseconds latest_step = 0;
    /// Datagrams that hosts refused or the kernel did not take.
    std::uint64_t refused = 0;
  };

  /// Enters a user namespace if this process needs one, so it must have one thread. Throws std::runtime_error if this
  /// machine does not let it make network namespaces with TUN devices, and says what is missing.
  /// `agent_file`: the compiled agent.bpf.c, loaded for the first flow over the kernel's TCP.
  explicit LinuxNetwork(std::string agent_file);
  ~LinuxNetwork() { End(); }

  /// Starts the scenario at time 0. Throws std::invalid_argument if it cannot run here.
  void Reset(Scenario scenario, std::uint64_t seed);
  /// Sets the gains of an agent's flow. Throws std::out_of_range or std::invalid_argument.
  void SetGains(std::int64_t flow, double cwnd_gain, double pacing_gain);
  /// Returns at the end of the step, or of the episode. Throws std::runtime_error if a command failed, or sent what
  /// does not fit in a packet.
  void Step(Nanoseconds duration);

  const Scenario& scenario() const { return scenario_; }
  Nanoseconds now() const { return now_; }
  bool IsComplete() const { return is_complete_; }
  bool IsOver() const { return is_complete_ || now_ >= end_; }

  // Rows of the last step.
  const LinkRow& GetLinkRow() const { return link_row_; }
  const FlowRow& GetFlowRow(std::size_t flow) const { return flow_rows_[flow]; }
  Timing GetTiming();

 private:
  struct FlowState {
    Nanoseconds start = 0;
    Nanoseconds stop = kNever;
    Nanoseconds end = kNever;
    bool is_complete = false;
    Delivery delivery;  // of a flow over UDP
    // One of the three kinds.
    std::unique_ptr<UdpSender> sender;
    std::unique_ptr<UdpReceiver> receiver;
    std::unique_ptr<TcpFlow> tcp;
    std::unique_ptr<CommandFlow> command;
    std::uint64_t seed = 0;
    bool has_opened = false;
    // At the start of the step.
    FlowCounts before;
    TcpReading::Counts tcp_before;
    Passage passage_before;
    Bytes received_before = 0;
  };

  void End();
  void MakeFlow(std::size_t index, std::uint64_t seed);
  /// Serves both ends of our flows until `is_stopped_`.
  void Run();
  /// Notes what the receiving application has got.
  void Deliver(std::size_t index);
  void EndStep();
  /// Throws std::runtime_error if a controller's decisions are void.
  void CheckDecisions();
  double ActiveShareOf(const FlowState& flow) const;
  FlowRow EndUdpStep(FlowState& flow);
  FlowRow EndTcpStep(std::size_t index);
  FlowRow EndCommandStep(std::size_t index);
  /// What the emulator saw of a flow in the step.
  FlowRow PassageRow(const FlowState& flow, const Passage& passage, const Passage& before) const;
  void UpdateCompleteness();
  /// Notes that a client has ended. Throws std::runtime_error if one end failed, or sent fragments.
  void UpdateCommand(std::size_t index);
  void StartServers();
  /// Asks all commands to end, and waits for a moment.
  void EndCommands();

  std::string agent_file_;
  std::unique_ptr<KernelAgent> agent_;
  Scenario scenario_;
  std::unique_ptr<NetworkNamespace> senders_side_;
  std::unique_ptr<NetworkNamespace> receivers_side_;
  std::unique_ptr<Emulator> emulator_;
  std::optional<EpisodeClock> clock_;
  std::vector<FlowState> flows_;
  std::mutex hosts_;  // guards every `sender`, `receiver` and `delivery`
  std::atomic<bool> is_stopped_ = false;
  std::vector<std::thread> threads_;

  Nanoseconds now_ = 0;
  Nanoseconds step_start_ = 0;
  Nanoseconds end_ = 0;
  bool is_complete_ = false;
  LinkRow link_row_ = EmptyRow<LinkRow>();
  std::vector<FlowRow> flow_rows_;
  Timing timing_;
};

}  // namespace bbrgym
