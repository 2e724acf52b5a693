#include "envs/linux/linux_network.h"

#include <sys/socket.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "envs/linux/serve.h"
#include "envs/transport/connection.h"

namespace bbrgym {

namespace {

const std::string kSendersAddress = "10.0.1.1";
const std::string kReceiversAddress = "10.0.2.1";
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr int kTrialMtu = 1500;
constexpr int kSocketBuffer = 8 << 20;
constexpr Nanoseconds kLongestWait = 5 * kMillisecond;       // so that a thread ends soon
constexpr Nanoseconds kCommandsGrace = 1500 * kMillisecond;  // more than a command has before it is killed

bool IsKernels(const Flow& flow) {
  return flow.algorithm.starts_with(kKernelPrefix) || flow.IsOverKernel();
}

/// The kernel's TCP negotiates classic ECN (RFC 3168), in a whole network namespace or not at all.
void CheckEcn(const Scenario& scenario) {
  std::optional<bool> has_ecn;
  for (const Flow& flow : scenario.flows) {
    if (!IsKernels(flow)) continue;
    if (flow.ecn && *flow.ecn != "classic") {
      throw std::invalid_argument("ecn of a flow '" + flow.algorithm + "' must be classic or null, got '" + *flow.ecn +
                                  "'");
    }
    if (has_ecn.value_or(flow.ecn.has_value()) != flow.ecn.has_value()) {
      throw std::invalid_argument("all flows of the kernel's TCP must have the same ecn, classic or null");
    }
    has_ecn = flow.ecn.has_value();
  }
}

/// The kernel's sockets take what they have room for at once.
void CheckSources(const Scenario& scenario) {
  for (const Flow& flow : scenario.flows) {
    if (!(IsKernels(flow) || flow.IsCommand()) || !flow.app_rate_mbps) continue;
    throw std::invalid_argument("a flow '" + flow.algorithm +
                                "' cannot have app_rate_mbps: only flows of our own controllers can");
  }
}

FileDescriptor UdpSocket() {
  FileDescriptor made(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (made.get() < 0) ThrowErrno("cannot make a UDP socket");
  // Beyond the system's limit where we may: a full buffer would drop what the scenario's queue does not.
  for (const int option : {SO_SNDBUFFORCE, SO_RCVBUFFORCE}) {
    setsockopt(made.get(), SOL_SOCKET, option, &kSocketBuffer, sizeof(kSocketBuffer));
  }
  return made;
}

FileDescriptor TcpSocket(int flags) {
  FileDescriptor made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (made.get() < 0) ThrowErrno("cannot make a TCP socket");
  // Closing it, or what it accepts, is a reset: a socket that waits for the end of its connection would keep its
  // namespace for minutes after the episode.
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  if (setsockopt(made.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) != 0) ThrowErrno("cannot set SO_LINGER");
  return made;
}

void Bind(const FileDescriptor& socket, const sockaddr_in& address) {
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    ThrowErrno("cannot bind a socket");
  }
}

}  // namespace

LinuxNetwork::LinuxNetwork(std::string agent_file) : agent_file_(std::move(agent_file)) {
  EnterUserNamespace();
  NetworkNamespace(kSendersAddress, kReceiversAddress, kTrialMtu);
}

void LinuxNetwork::Reset(Scenario scenario, std::uint64_t seed) {
  scenario.Check();
  CheckEcn(scenario);
  CheckSources(scenario);
  for (const Flow& flow : scenario.flows) {
    if (flow.IsCommand() || flow.algorithm.starts_with(kKernelPrefix)) continue;
    CheckFlowController(flow);
  }
  End();
  const bool has_agent = std::any_of(scenario.flows.begin(), scenario.flows.end(), std::mem_fn(&Flow::IsOverKernel));
  if (has_agent && !agent_) agent_ = std::make_unique<KernelAgent>(agent_file_);
  scenario_ = std::move(scenario);
  // The senders' decides the size of data, TCP's too. Answers must fit in the receivers', whatever that size is.
  const int mtu = static_cast<int>(scenario_.packet_bytes) + kHeaderBytes;
  const bool has_tcp_ecn = std::any_of(scenario_.flows.begin(), scenario_.flows.end(),
                                       [](const Flow& flow) { return IsKernels(flow) && flow.ecn; });
  senders_side_ = std::make_unique<NetworkNamespace>(kSendersAddress, kReceiversAddress, mtu, has_tcp_ecn);
  receivers_side_ =
      std::make_unique<NetworkNamespace>(kReceiversAddress, kSendersAddress, std::max(mtu, kLargestAnswer));
  const EpisodeSeeds seeds(seed, scenario_.flows.size());
  emulator_ = std::make_unique<Emulator>(scenario_, seeds, senders_side_->device(), receivers_side_->device());
  flows_ = std::vector<FlowState>(scenario_.flows.size());
  flow_rows_.assign(flows_.size(), EmptyRow<FlowRow>());
  end_ = FromSeconds(scenario_.duration_s);
  timing_ = {};
  is_complete_ = is_stopped_ = false;
  now_ = step_start_ = 0;
  StartServers();
  clock_.emplace();
  UseRealTime(Priority::kSteps);  // the others wait for this thread's locks
  for (std::size_t i = 0; i < flows_.size(); ++i) MakeFlow(i, seeds.flows[i]);
  threads_.emplace_back([this] { emulator_->Run(*clock_); });
  threads_.emplace_back([this] { Run(); });
  EndStep();
}

/// Before the episode begins: they take as long as they take.
void LinuxNetwork::StartServers() {
  for (std::size_t i = 0; i < flows_.size(); ++i) {
    const Flow& given = scenario_.flows[i];
    if (!given.IsCommand()) continue;
    const bool is_from_server = given.data_from == "server";
    const double seconds = std::min(given.stop_s.value_or(scenario_.duration_s), scenario_.duration_s) - given.start_s;
    CommandFlow::Place place{.server_side = is_from_server ? senders_side_.get() : receivers_side_.get(),
                             .client_side = is_from_server ? receivers_side_.get() : senders_side_.get(),
                             .address = is_from_server ? kSendersAddress : kReceiversAddress,
                             .port = kFirstPort + static_cast<int>(i)};
    const std::string name = "flows[" + std::to_string(i) + "]";
    flows_[i].command = std::make_unique<CommandFlow>(given, name, std::move(place), seconds);
  }
  for (const FlowState& flow : flows_) {
    if (flow.command) flow.command->AwaitServer();
  }
}

void LinuxNetwork::MakeFlow(std::size_t index, std::uint64_t seed) {
  const Flow& given = scenario_.flows[index];
  FlowState& flow = flows_[index];
  flow.start = FromSeconds(given.start_s);
  if (given.stop_s) flow.stop = FromSeconds(*given.stop_s);
  flow.end = flow.stop;
  flow.seed = seed;
  flow.delivery = Delivery(given.size_bytes, flow.start);
  if (flow.command) {
    flow.command->StartClient(*clock_, flow.start, flow.stop);
    return;
  }
  const sockaddr_in address = SocketAddress(kReceiversAddress, kFirstPort + static_cast<int>(index));
  FileDescriptor sender;
  FileDescriptor receiver;
  receivers_side_->Run([&] {
    receiver = IsKernels(given) ? TcpSocket(0) : UdpSocket();
    Bind(receiver, address);
    if (IsKernels(given) && listen(receiver.get(), 1) != 0) ThrowErrno("cannot listen");
  });
  senders_side_->Run([&] {
    sender = IsKernels(given) ? TcpSocket(SOCK_NONBLOCK) : UdpSocket();
    if (IsKernels(given)) return;
    if (connect(sender.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      ThrowErrno("cannot connect a UDP socket");
    }
  });
  if (IsKernels(given)) {
    flow.tcp = std::make_unique<TcpFlow>(std::move(sender), std::move(receiver), address, given, flow.start, flow.stop,
                                         *clock_, agent_.get());
  } else {
    flow.sender =
        std::make_unique<UdpSender>(std::move(sender), given, scenario_.packet_bytes, seed, flow.start, flow.stop);
    flow.receiver = std::make_unique<UdpReceiver>(std::move(receiver));
  }
}

void LinuxNetwork::EndCommands() {
  const Nanoseconds limit = MonotonicNow() + kCommandsGrace;
  const auto is_running = [](const FlowState& flow) { return flow.command && !flow.command->IsOver(); };
  for (const FlowState& flow : flows_) {
    if (flow.command) flow.command->Terminate();
  }
  while (MonotonicNow() < limit && std::any_of(flows_.begin(), flows_.end(), is_running)) {
    constexpr timespec kNap{.tv_sec = 0, .tv_nsec = 2'000'000};
    nanosleep(&kNap, nullptr);
  }
}

void LinuxNetwork::End() {
  EndCommands();  // while packets still cross the link, so that they can say goodbye
  is_stopped_ = true;
  if (emulator_) emulator_->Stop();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  flows_.clear();
  emulator_.reset();
  senders_side_.reset();
  receivers_side_.reset();
}

void LinuxNetwork::SetGains(std::int64_t index, double cwnd_gain, double pacing_gain) {
  scenario_.CheckSteerable(index);
  const std::lock_guard lock(hosts_);
  FlowState& flow = flows_[static_cast<std::size_t>(index)];
  if (flow.tcp) {
    flow.tcp->SetGains(cwnd_gain, pacing_gain);
  } else {
    flow.sender->SetGains(cwnd_gain, pacing_gain);
  }
}

void LinuxNetwork::Run() {
  std::vector<pollfd> sockets;
  for (const FlowState& flow : flows_) {
    if (!flow.sender) continue;
    for (const int socket : {flow.sender->socket(), flow.receiver->socket()}) sockets.push_back({socket, POLLIN, 0});
  }
  if (sockets.empty()) return;
  UseRealTime(Priority::kHosts);
  const auto work = [&] {
    const std::lock_guard lock(hosts_);
    Nanoseconds next = kNever;
    const auto serve = [&](auto& end, const pollfd& socket) {
      if (socket.revents != 0 || end.NextTime() <= clock_->Now()) end.Work(*clock_);
      next = std::min(next, end.NextTime());
    };
    auto socket = sockets.cbegin();
    for (std::size_t i = 0; i < flows_.size(); ++i) {
      FlowState& flow = flows_[i];
      if (!flow.sender) continue;
      serve(*flow.sender, *socket++);
      serve(*flow.receiver, *socket++);
      Deliver(i);
    }
    return next;
  };
  Serve("hosts", sockets, *clock_, work, [this] { return is_stopped_.load(); });
}

void LinuxNetwork::Deliver(std::size_t index) {
  FlowState& flow = flows_[index];
  const Nanoseconds opened = flow.sender->opened();
  if (opened > 0 && !flow.has_opened) {
    flow.has_opened = true;
    const Flow& given = scenario_.flows[index];
    const Connection connection = MakeConnection(given, scenario_.packet_bytes, 0, flow.seed);
    if (const auto source = MakeAppSource(given, connection, opened)) {
      flow.delivery.Expect(*source, connection.packet_bytes);
    }
  }
  const Bytes received = flow.receiver->receiver().counts().received;
  if (received >= flow.delivery.due()) flow.delivery.OnReceived(clock_->Now(), received);
}

void LinuxNetwork::Step(Nanoseconds duration) {
  if (flows_.empty()) throw std::logic_error("step before the first reset");
  if (IsOver()) return;
  const Nanoseconds late = clock_->Now() - now_;
  // By what was asked for: that the episode has less left makes no decision late.
  const Nanoseconds missed = late / std::max<Nanoseconds>(duration, 1);
  duration = std::clamp<Nanoseconds>(duration, 1, end_ - now_);
  timing_.latest_decision = std::max(timing_.latest_decision, late);
  timing_.missed_steps += static_cast<std::uint64_t>(missed);
  const Nanoseconds end = std::min(end_, now_ + (missed + 1) * duration);
  while (!is_complete_ && clock_->Now() < end) {
    const Nanoseconds nap = std::clamp<Nanoseconds>(end - clock_->Now(), 0, kLongestWait);
    const timespec sleep{.tv_sec = 0, .tv_nsec = nap};
    nanosleep(&sleep, nullptr);
    UpdateCompleteness();
  }
  // A complete episode ends when it is complete. Any other step is measured as of its end, apart from the lateness.
  now_ = is_complete_ ? std::min(clock_->Now(), end) : end;
  timing_.latest_step = std::max(timing_.latest_step, clock_->Now() - end);
  EndStep();
  if (IsOver()) EndCommands();  // so that what they write at their end is there after the episode
  CheckDecisions();
}

void LinuxNetwork::CheckDecisions() {
  const std::lock_guard lock(hosts_);
  for (std::size_t i = 0; i < flows_.size(); ++i) {
    Sender* sender = flows_[i].sender ? flows_[i].sender->sender() : nullptr;
    const std::string fault = FaultOf(sender ? &sender->controller() : nullptr, i);
    if (!fault.empty()) throw std::runtime_error(fault);
  }
}

/// A flow is complete once its receiver has everything, and its sender then ends.
void LinuxNetwork::UpdateCompleteness() {
  bool is_complete = true;
  for (std::size_t i = 0; i < flows_.size(); ++i) {
    FlowState& flow = flows_[i];
    const std::optional<std::int64_t>& size = scenario_.flows[i].size_bytes;
    if (flow.command) {
      UpdateCommand(i);
    } else if (size && !flow.is_complete) {
      if (flow.tcp) {
        flow.is_complete = flow.tcp->IsComplete();
        if (flow.is_complete) flow.end = flow.tcp->end();
      } else {
        const std::lock_guard lock(hosts_);
        flow.is_complete = flow.delivery.IsComplete();
        if (flow.is_complete) {
          flow.end = std::min(flow.end, flow.start + *flow.delivery.completion());
          flow.sender->Stop();
        }
      }
    }
    is_complete = is_complete && flow.is_complete;
  }
  is_complete_ = is_complete;
}

/// Writes the rows of the step that ends and begins to count for the next one, so that none misses what happens between
/// them.
void LinuxNetwork::EndStep() {
  link_row_ = emulator_->EndStep(*clock_);
  const std::lock_guard lock(hosts_);
  for (std::size_t i = 0; i < flows_.size(); ++i) {
    FlowState& flow = flows_[i];
    flow_rows_[i] = flow.tcp ? EndTcpStep(i) : flow.command ? EndCommandStep(i) : EndUdpStep(flow);
  }
  step_start_ = now_;
}

void LinuxNetwork::UpdateCommand(std::size_t index) {
  FlowState& flow = flows_[index];
  if (emulator_->GetPassage(index).is_fragmented) {
    const Bytes most = scenario_.packet_bytes + kHeaderBytes - kDatagramHeaderBytes;
    throw std::runtime_error("flows[" + std::to_string(index) + "]: it sends datagrams of more than " +
                             std::to_string(most) +
                             " bytes, which do not fit in a packet: packet_bytes must be larger");
  }
  const std::optional<Nanoseconds> end = flow.command->End();
  if (!end) return;
  flow.end = std::min(flow.end, *end);
  flow.is_complete = scenario_.flows[index].size_bytes && *end < flow.stop;
}

double LinuxNetwork::ActiveShareOf(const FlowState& flow) const {
  return now_ < flow.start ? 0.0 : ActiveShare({flow.start, flow.end}, {step_start_, now_});
}

FlowRow LinuxNetwork::EndUdpStep(FlowState& flow) {
  Sender* sender = flow.sender->sender();
  const FlowRow row = MakeFlowRow({.seconds = static_cast<double>(now_ - step_start_) / 1e9,
                                   .active_share = ActiveShareOf(flow),
                                   .packet_bytes = scenario_.packet_bytes,
                                   .is_open = flow.sender->IsOpen(),
                                   .before = flow.before},
                                  ReadingOf(sender, flow.receiver->receiver(), flow.delivery));
  flow.before = CountsOf(sender, flow.receiver->receiver());
  if (sender) sender->StartStep();
  flow.delivery.StartStep();
  return row;
}

FlowRow LinuxNetwork::PassageRow(const FlowState& flow, const Passage& passage, const Passage& before) const {
  FlowRow row = EmptyRow<FlowRow>();
  const double seconds = static_cast<double>(now_ - step_start_) / 1e9;
  const auto sent_bytes = static_cast<double>(passage.sent_bytes - before.sent_bytes);
  row.is_active = ActiveShareOf(flow);
  row.sent_packets = static_cast<double>(passage.sent_packets - before.sent_packets);
  row.send_rate_mbps = seconds > 0.0 ? sent_bytes * 8e-6 / seconds : 0.0;
  row.arrived_bytes = static_cast<double>(passage.arrived_bytes - before.arrived_bytes);
  row.inorder_bytes = static_cast<double>(passage.inorder_bytes - before.inorder_bytes);
  return row;
}

/// The stack's own state is unknown. RTTs are the packets' delays and the rest of the base RTT. Only the stack knows
/// which UDP packets are retransmissions or in order.
FlowRow LinuxNetwork::EndCommandStep(std::size_t index) {
  FlowState& flow = flows_[index];
  const Flow& given = scenario_.flows[index];
  const Passage passage = emulator_->GetPassage(index);
  const Passage before = std::exchange(flow.passage_before, passage);
  FlowRow row = PassageRow(flow, passage, before);
  const double seconds = static_cast<double>(now_ - step_start_) / 1e9;
  row.received_bytes = static_cast<double>(passage.received_bytes - before.received_bytes);
  row.throughput_mbps = seconds > 0.0 ? row.received_bytes * 8e-6 / seconds : 0.0;
  row.delivered_packets = static_cast<double>(passage.arrived_packets - before.arrived_packets);
  row.delivery_rate_mbps = seconds > 0.0 ? row.arrived_bytes * 8e-6 / seconds : 0.0;
  row.lost_packets = static_cast<double>(passage.lost_packets - before.lost_packets);
  row.marked_packets = static_cast<double>(passage.marked_packets - before.marked_packets);
  if (passage.is_tcp || row.sent_packets == 0.0) {
    row.retransmitted_packets = static_cast<double>(passage.retransmitted_packets - before.retransmitted_packets);
  }
  if (!passage.is_tcp && row.arrived_bytes > 0.0) row.inorder_bytes = kNaN;
  if (flow.is_complete) row.completion_time_ms = static_cast<double>(flow.end - flow.start) / 1e6;
  double rest_ms = given.rtt_ms - given.ForwardMs();
  for (const auto& [time_s, rtt_ms] : given.rtt_schedule) {
    if (FromSeconds(time_s) <= now_) rest_ms = rtt_ms - given.ForwardMs();
  }
  const auto rtt_ms = [rest_ms](double delay) { return delay / 1e6 + rest_ms; };
  const auto [delays, last] = emulator_->TakeDelays(index);
  if (last) row.rtt_last_ms = rtt_ms(static_cast<double>(*last));
  if (delays.packets == 0) return row;
  const auto packets = static_cast<double>(delays.packets);
  row.rtt_min_ms = rtt_ms(static_cast<double>(delays.least));
  row.rtt_max_ms = rtt_ms(static_cast<double>(delays.most));
  row.rtt_mean_ms = rtt_ms(static_cast<double>(delays.sum) / packets);
  row.rtt_jitter_ms = static_cast<double>(delays.jitter_sum) / packets / 1e6;
  return row;
}

/// What the kernel does not tell is NaN.
FlowRow LinuxNetwork::EndTcpStep(std::size_t index) {
  FlowState& flow = flows_[index];
  const auto packet_bytes = static_cast<double>(scenario_.packet_bytes);
  const Passage passage = emulator_->GetPassage(index);
  FlowRow row = PassageRow(flow, passage, std::exchange(flow.passage_before, passage));
  const double seconds = static_cast<double>(now_ - step_start_) / 1e9;
  const auto mbps = [seconds](double bytes) { return seconds > 0.0 ? bytes * 8e-6 / seconds : 0.0; };
  const Bytes received = flow.tcp->received_bytes();
  row.received_bytes = static_cast<double>(received - std::exchange(flow.received_before, received));
  row.throughput_mbps = mbps(row.received_bytes);
  if (flow.is_complete) row.completion_time_ms = static_cast<double>(flow.tcp->end() - flow.start) / 1e6;
  const auto reading = flow.tcp->Read();
  if (!reading) {
    row.delivered_packets = row.marked_packets = row.retransmitted_packets = row.rto_count = 0.0;
    row.delivery_rate_mbps = row.in_flight_packets = row.is_buffer_limited = 0.0;
    return row;
  }
  AddTcp(*reading, std::exchange(flow.tcp_before, reading->counts), seconds, packet_bytes, row);
  flow.tcp->StartStep();
  if (now_ >= flow.end) {
    row.in_flight_packets = 0.0;
    row.cwnd_packets = row.pacing_rate_mbps = kNaN;
  }
  return row;
}

LinuxNetwork::Timing LinuxNetwork::GetTiming() {
  Timing timing = timing_;
  if (!emulator_) return timing;
  timing.departures = emulator_->GetLateness();
  const std::lock_guard lock(hosts_);
  for (const FlowState& flow : flows_) {
    if (flow.sender) timing.refused += flow.sender->refused() + flow.receiver->refused();
  }
  return timing;
}

}  // namespace bbrgym
