#pragma once

#include <netinet/in.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "envs/linux/clock.h"
#include "envs/linux/emulator.h"
#include "envs/linux/file_descriptor.h"
#include "envs/linux/kernel_agent.h"
#include "envs/linux/tcp_reading.h"
#include "envs/model/rows.h"
#include "envs/model/scenario.h"

namespace bbrgym {

/// What the names of the kernel's own algorithms begin with.
inline constexpr std::string_view kKernelPrefix = "linux-";

/// A flow of the kernel's TCP: `linux-cubic`, `linux-bbr`, …, or one that an agent or a policy steers. Its rows come
/// from `ReadTcp`, what the receiving application read, and what the emulator saw.
class TcpFlow {
 public:
  /// `sender` does not block; `listener` does, and listens at `address`. The flow begins at `start`, and ends at
  /// `stop`. `agent` is for flows with the transport `kernel`. Throws std::invalid_argument for what the kernel or
  /// `agent` does not have.
  TcpFlow(FileDescriptor sender, FileDescriptor listener, const sockaddr_in& address, const Flow& flow,
          Nanoseconds start, Nanoseconds stop, const EpisodeClock& clock, const KernelAgent* agent);
  ~TcpFlow();

  bool IsComplete() const { return size_ && received_ >= *size_; }
  /// When all bytes had arrived, or `stop`.
  Nanoseconds end() const { return end_; }
  std::int64_t received_bytes() const { return received_; }

  /// Its state, after `stop` its last one; nothing before it is connected.
  std::optional<TcpReading> Read();
  /// Steers a flow `agent`.
  void SetGains(double cwnd_gain, double pacing_gain);
  /// Begins to measure a step.
  void StartStep();

 private:
  void Send(const sockaddr_in& address);
  /// Sends no more, not even what waits in the socket.
  void FallSilent();
  void Receive();

  const KernelAgent* agent_;
  std::string algorithm_;  // by the kernel's name, without an agent
  agent_input input_{};
  std::optional<Bytes> size_;
  Nanoseconds start_;
  Nanoseconds stop_;
  const EpisodeClock& clock_;
  FileDescriptor sender_;
  FileDescriptor listener_;
  std::atomic<Nanoseconds> end_;
  std::atomic<std::int64_t> received_ = 0;
  std::atomic<bool> is_connected_ = false;
  std::atomic<bool> is_ending_ = false;
  std::mutex reading_;              // guards `last_`, `is_silent_` and `input_.step`
  std::optional<TcpReading> last_;  // of a silent flow: its connection's state is gone
  bool is_silent_ = false;
  std::thread sending_;
  std::thread receiving_;
};

}  // namespace bbrgym
