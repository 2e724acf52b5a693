#include "envs/linux/tcp_flow.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

namespace bbrgym {

namespace {

/// The send buffer of an agent's socket. It exceeds the system's limit (tcp_wmem), which may be less than the three
/// BDPs of Startup. A flow that the buffer limits counts as limited by the application, and BBR never leaves Startup
/// (bbr_check_full_bw_reached).
constexpr int kSendBuffer = 32 << 20;

constexpr Nanoseconds kLongestWait = 10 * kMillisecond;  // so that a thread ends soon

/// Waits until `time`, or until `is_ending`.
void WaitUntil(const EpisodeClock& clock, Nanoseconds time, const std::atomic<bool>& is_ending) {
  while (!is_ending) {
    const Nanoseconds left = time - clock.Now();
    if (left <= 0) return;
    const Nanoseconds nap = std::min(left, kLongestWait);
    const timespec sleep{.tv_sec = 0, .tv_nsec = nap};
    nanosleep(&sleep, nullptr);
  }
}

}  // namespace

TcpFlow::TcpFlow(FileDescriptor sender, FileDescriptor listener, const sockaddr_in& address, const Flow& flow,
                 Nanoseconds start, Nanoseconds stop, const EpisodeClock& clock, const KernelAgent* agent)
    : agent_(flow.IsOverKernel() ? agent : nullptr),
      algorithm_(agent_ != nullptr ? "" : flow.algorithm.substr(kKernelPrefix.size())),
      size_(flow.size_bytes),
      start_(start),
      stop_(stop),
      clock_(clock),
      sender_(std::move(sender)),
      listener_(std::move(listener)),
      end_(stop) {
  if (agent_ != nullptr) {
    input_ = agent_->Control(sender_.get(), flow);
    setsockopt(sender_.get(), SOL_SOCKET, SO_SNDBUFFORCE, &kSendBuffer, sizeof(kSendBuffer));
  } else if (setsockopt(sender_.get(), IPPROTO_TCP, TCP_CONGESTION, algorithm_.data(),
                        static_cast<socklen_t>(algorithm_.size())) != 0) {
    throw std::invalid_argument("this kernel has no congestion control '" + algorithm_ + "'");
  }
  receiving_ = std::thread([this] { Receive(); });
  sending_ = std::thread([this, address] { Send(address); });
}

TcpFlow::~TcpFlow() {
  is_ending_ = true;
  shutdown(sender_.get(), SHUT_RDWR);
  shutdown(listener_.get(), SHUT_RDWR);
  sending_.join();
  receiving_.join();
}

void TcpFlow::Send(const sockaddr_in& address) {
  WaitUntil(clock_, start_, is_ending_);
  if (is_ending_ || clock_.Now() >= stop_) return;
  const int connected = connect(sender_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  if (connected != 0 && errno != EINPROGRESS) return;
  const std::vector<char> zeros(1 << 16);
  Bytes left = size_.value_or(std::numeric_limits<Bytes>::max());
  for (;;) {
    if (is_ending_ || IsComplete()) return;
    const Nanoseconds rest = stop_ - clock_.Now();
    if (rest <= 0) break;
    const timespec timeout{.tv_sec = 0, .tv_nsec = std::min(rest, kLongestWait)};
    pollfd room{sender_.get(), static_cast<short>(left > 0 ? POLLOUT : 0), 0};
    ppoll(&room, 1, &timeout, nullptr);
    if ((room.revents & (POLLERR | POLLHUP)) != 0) return;
    if ((room.revents & POLLOUT) == 0) continue;
    is_connected_ = true;
    const auto chunk = static_cast<std::size_t>(std::min<Bytes>(left, static_cast<Bytes>(zeros.size())));
    const ssize_t sent = send(sender_.get(), zeros.data(), chunk, MSG_NOSIGNAL);
    if (sent > 0) {
      left -= sent;
    } else {
      WaitUntil(clock_, clock_.Now() + kMillisecond, is_ending_);  // the kernel is short of memory
    }
  }
  FallSilent();
}

void TcpFlow::FallSilent() {
  const std::lock_guard lock(reading_);
  if (is_connected_) last_ = ReadTcp(sender_.get(), algorithm_, agent_, input_.step);
  const sockaddr nobody{.sa_family = AF_UNSPEC, .sa_data = {}};
  connect(sender_.get(), &nobody, sizeof(nobody));  // a reset, and the descriptor stays
  is_silent_ = true;
}

void TcpFlow::Receive() {
  const FileDescriptor connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (connection.get() < 0) return;
  std::vector<char> buffer(1 << 18);
  while (!is_ending_) {
    pollfd ready{connection.get(), POLLIN, 0};
    if (poll(&ready, 1, 20) == 0) continue;
    const ssize_t bytes = recv(connection.get(), buffer.data(), buffer.size(), 0);
    if (bytes <= 0) return;
    const std::int64_t received = received_ + bytes;
    // Whoever sees that the flow is complete sees its end.
    if (size_ && received >= *size_) end_ = std::min<Nanoseconds>(end_, clock_.Now());
    received_ = received;
  }
}

std::optional<TcpReading> TcpFlow::Read() {
  if (!is_connected_) return std::nullopt;
  const std::lock_guard lock(reading_);
  if (!is_silent_) return ReadTcp(sender_.get(), algorithm_, agent_, input_.step);
  const std::optional<TcpReading> last = last_;
  if (last_ && last_->rtts) last_->rtts->count = 0;  // they are of the step that ends
  return last;
}

void TcpFlow::SetGains(double cwnd_gain, double pacing_gain) {
  bbrgym::SetGains(cwnd_gain, pacing_gain, input_);
  agent_->Write(sender_.get(), input_);
}

void TcpFlow::StartStep() {
  if (agent_ == nullptr) return;
  const std::lock_guard lock(reading_);
  ++input_.step;
  agent_->Write(sender_.get(), input_);
}

}  // namespace bbrgym
