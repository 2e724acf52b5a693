// TCP of this machine's kernel through a bottleneck in user space.
//
//   linux_bottleneck [--packet-bytes N] [--pause-ms MS --pause-every-ms MS]
//                    RATE_MBPS BUFFER_PACKETS DURATION_S CC:RTT_MS[:START_S]...
//
// Senders and receivers are in two network namespaces of their own, with a TUN device each, and this program carries
// every packet from one to the other: nothing leaves the machine, and the namespaces go with the process. Data is sent
// at the rate, from a queue that drops what comes when it is full, and half an RTT later it is there; ACKs take the
// other half. A packet's departure follows from when it came and from the rate, not from when this program wakes.
//
// After the duration it prints a JSON object: rates, queue, and unused share of the link in the second half, the
// retransmissions of the whole run, and how late packets left this program, in the mean and at worst. With pauses it
// sleeps for so long again and again, after exponentially distributed times; packets late for that do not count.
//
// Needs root for the namespaces, their devices and settings. Whatever happens, it ends soon after the duration.

#include <arpa/inet.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using Nanoseconds = std::int64_t;
using Device = std::array<const char*, 2>;  // its address, and its peer's

constexpr Nanoseconds kNever = std::numeric_limits<Nanoseconds>::max();
constexpr Device kSenders = {"10.0.2.1", "10.0.1.1"};
constexpr Device kReceivers = {"10.0.1.1", "10.0.2.1"};
constexpr int kFirstPort = 5001;  // flow i is the one to this port + i
constexpr int kHeaderBytes = 40;  // IPv4 and TCP without options: bbrgym.envs.scenario.HEADER_BYTES
constexpr int kMostPacketBytes = 1460;
constexpr int kMostDurationS = 3600;
constexpr std::size_t kMostFlows = 32;

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "linux_bottleneck: %s\n", what.c_str());
  std::_Exit(1);  // threads may be running
}

/// For a system call that failed.
[[noreturn]] void FailCall(const std::string& call) {
  Fail(call + ": " + std::strerror(errno));
}

Nanoseconds Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void SleepUntil(Nanoseconds time) {
  std::this_thread::sleep_until(std::chrono::steady_clock::time_point(std::chrono::nanoseconds(time)));
}

// Arguments

struct Flow {
  std::string cc;
  double rtt_ms;
  double start_s;
};

struct Options {
  double rate_mbps;
  std::size_t buffer_packets;
  double duration_s;
  std::vector<Flow> flows;
  int packet_bytes = 1000;
  double pause_ms = 0;
  double pause_every_ms = 0;  // from the end of one to the next, in the mean
};

double Number(const std::string& what, const std::string& text, double least, double most) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= least && value <= most)) {
    std::ostringstream message;
    message << what << " must be a number from " << least << " to " << most << ", not '" << text << "'";
    Fail(message.str());
  }
  return value;
}

std::size_t Count(const std::string& what, const std::string& text, double least, double most) {
  const double value = Number(what, text, least, most);
  if (value != std::floor(value)) Fail(what + " must be a whole number, not '" + text + "'");
  return static_cast<std::size_t>(value);
}

Flow ParseFlow(const std::string& text, double duration_s) {
  std::istringstream parts(text);
  std::string cc, rtt_ms, start_s = "0", rest;
  std::getline(parts, cc, ':');
  std::getline(parts, rtt_ms, ':');
  if (!parts.eof()) std::getline(parts, start_s, ':');
  if (!parts.eof() || cc.empty()) Fail("a flow is CC:RTT_MS[:START_S], not '" + text + "'");
  std::ifstream file("/proc/sys/net/ipv4/tcp_available_congestion_control");
  const std::vector<std::string> known{std::istream_iterator<std::string>(file), {}};
  if (std::find(known.begin(), known.end(), cc) == known.end()) {
    std::string names;
    for (const std::string& name : known) names += " " + name;
    Fail("no congestion control '" + cc + "'; this kernel has:" + names);
  }
  return {cc, Number("RTT_MS", rtt_ms, 0.1, 10'000), Number("START_S", start_s, 0, duration_s)};
}

Options ParseOptions(int count, char** arguments) {
  Options options;
  constexpr std::array<option, 4> kOptions = {{{"packet-bytes", required_argument, nullptr, 'b'},
                                               {"pause-ms", required_argument, nullptr, 'p'},
                                               {"pause-every-ms", required_argument, nullptr, 'e'},
                                               {nullptr, 0, nullptr, 0}}};
  for (int chosen; (chosen = getopt_long(count, arguments, "+", kOptions.data(), nullptr)) != -1;) {
    if (chosen == 'b') {
      options.packet_bytes = static_cast<int>(Count("--packet-bytes", optarg, 100, kMostPacketBytes));
    } else if (chosen == 'p') {
      options.pause_ms = Number("--pause-ms", optarg, 0.1, 1000);
    } else if (chosen == 'e') {
      options.pause_every_ms = Number("--pause-every-ms", optarg, 1, 1e6);
    } else {
      std::_Exit(1);  // getopt has said why
    }
  }
  const std::vector<std::string> rest(arguments + optind, arguments + count);
  if (rest.size() < 4) {
    Fail(
        "usage: linux_bottleneck [--packet-bytes N] [--pause-ms MS --pause-every-ms MS] "
        "RATE_MBPS BUFFER_PACKETS DURATION_S CC:RTT_MS[:START_S]...");
  }
  if ((options.pause_ms > 0) != (options.pause_every_ms > 0)) Fail("--pause-ms and --pause-every-ms need each other");
  options.rate_mbps = Number("RATE_MBPS", rest[0], 0.1, 1000);
  options.buffer_packets = Count("BUFFER_PACKETS", rest[1], 1, 100'000);
  options.duration_s = Number("DURATION_S", rest[2], 1, kMostDurationS);
  for (auto text = rest.begin() + 3; text != rest.end(); ++text) {
    options.flows.push_back(ParseFlow(*text, options.duration_s));
  }
  if (options.flows.size() > kMostFlows) Fail("at most " + std::to_string(kMostFlows) + " flows");
  return options;
}

// Namespaces

void Set(const std::string& name, const std::string& value) {
  std::ofstream file("/proc/sys/net/ipv4/" + name);  // of the namespace of this thread
  file << value << std::flush;
  if (!file) Fail("cannot set net.ipv4." + name + " to " + value);
}

/// The TUN device of a new namespace, in which this thread is from now on.
int EnterNamespace(const Device& device, int mtu) {
  if (unshare(CLONE_NEWNET) != 0) FailCall("a new network namespace (root may make one)");
  Set("tcp_timestamps", "0");  // so that every packet has as many bytes
  Set("tcp_no_metrics_save", "1");
  const int tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (tun < 0) FailCall("/dev/net/tun");
  ifreq request{};
  std::strcpy(request.ifr_name, "tun0");
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  if (ioctl(tun, TUNSETIFF, &request) != 0) FailCall("a TUN device");
  const int control = socket(AF_INET, SOCK_DGRAM, 0);
  const auto configure = [&](unsigned long what, const char* name) {
    if (ioctl(control, what, &request) != 0) FailCall(name);
  };
  const auto set_address = [&](unsigned long what, const char* text) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    inet_pton(AF_INET, text, &address.sin_addr);
    std::memcpy(&request.ifr_addr, &address, sizeof(address));
    configure(what, text);
  };
  set_address(SIOCSIFADDR, device[0]);
  set_address(SIOCSIFDSTADDR, device[1]);
  request.ifr_mtu = mtu;
  configure(SIOCSIFMTU, "the device's MTU");
  request.ifr_qlen = 20'000;  // a device that drops were a second bottleneck
  configure(SIOCSIFTXQLEN, "the device's queue");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  configure(SIOCSIFFLAGS, "the device");
  close(control);
  return tun;
}

sockaddr_in ReceiverAddress(std::size_t flow) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(kFirstPort + flow));
  inet_pton(AF_INET, kReceivers[0], &address.sin_addr);
  return address;
}

int Listen(std::size_t flow) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address = ReceiverAddress(flow);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 || listen(listener, 1) != 0) {
    FailCall("a receiver's socket");
  }
  return listener;
}

int SenderSocket(const std::string& cc) {
  const int sender = socket(AF_INET, SOCK_STREAM, 0);
  if (setsockopt(sender, IPPROTO_TCP, TCP_CONGESTION, cc.data(), static_cast<socklen_t>(cc.size())) != 0) {
    FailCall("congestion control " + cc);
  }
  return sender;
}

// Flows

void Receive(int listener, std::atomic<std::int64_t>& received_bytes) {
  const int connection = accept(listener, nullptr, nullptr);
  std::vector<char> buffer(1 << 18);
  for (ssize_t bytes; (bytes = recv(connection, buffer.data(), buffer.size(), 0)) > 0;) received_bytes += bytes;
}

void Send(int sender, std::size_t flow, Nanoseconds start) {
  SleepUntil(start);
  const sockaddr_in address = ReceiverAddress(flow);
  if (connect(sender, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) FailCall("connect");
  const std::vector<char> zeros(1 << 16);
  while (send(sender, zeros.data(), zeros.size(), MSG_NOSIGNAL) > 0) {
  }
}

unsigned Retransmissions(int sender) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(sender, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) FailCall("TCP_INFO");
  return info.tcpi_total_retrans;
}

// The bottleneck

class Bottleneck {
 public:
  Bottleneck(const Options& options, int senders, int receivers, Nanoseconds start)
      : options_(options),
        senders_(senders),
        receivers_(receivers),
        measured_from_(start + static_cast<Nanoseconds>(5e8 * options.duration_s)),
        accounted_(start) {
    for (std::size_t i = 0; i < options.flows.size(); ++i) {
      data_.push_back({receivers, {}});
      acks_.push_back({senders, {}});
    }
  }

  /// Until `Stop`.
  void Run() {
    prctl(PR_SET_TIMERSLACK, 1000);  // ns
    const sched_param priority{.sched_priority = 2};
    if (sched_setscheduler(0, SCHED_FIFO, &priority) != 0) {
      std::fprintf(stderr, "linux_bottleneck: no real-time priority (%s): may be late\n", std::strerror(errno));
    }
    Nanoseconds pause = NextPause();
    while (!is_stopped_) {
      if (Now() >= pause) {
        SleepUntil(Now() + static_cast<Nanoseconds>(1e6 * options_.pause_ms));
        resumed_ = Now();
        pause = NextPause();
      }
      Deliver();
      for (int i = 0; i < kBatch && AcceptData(); ++i) {
      }
      for (int i = 0; i < kBatch && AcceptAck(); ++i) {
      }
      const Nanoseconds wait = std::clamp<Nanoseconds>(std::min(NextDue(), pause) - Now(), 0, kLongestWait);
      const timespec timeout{.tv_sec = 0, .tv_nsec = wait};
      std::array<pollfd, 2> devices = {{{senders_, POLLIN, 0}, {receivers_, POLLIN, 0}}};
      ppoll(devices.data(), devices.size(), &timeout, nullptr);
    }
    Account(Now());
  }

  void Stop() { is_stopped_ = true; }

  // Once `Run` has returned. Of the second half:
  double queue_ms() const { return 1e-6 * queue_ns_ns_ / measured_ns_; }
  double unused() const { return idle_ns_ / measured_ns_; }
  // Of the whole run:
  double late_mean_ms() const { return 1e-6 * late_sum_ns_ / std::max(1.0, delivered_); }
  double late_worst_ms() const { return 1e-6 * static_cast<double>(late_worst_); }

 private:
  static constexpr int kBatch = 64;                       // so that what is due leaves while much comes
  static constexpr Nanoseconds kLongestWait = 5'000'000;  // so that it stops soon

  struct Packet {
    Nanoseconds due;
    std::size_t bytes;
    std::array<std::uint8_t, kMostPacketBytes + 2 * kHeaderBytes> content;
  };

  /// What is on its way to a device, in the order in which it is due.
  struct Path {
    int device;
    std::deque<Packet> packets;
  };

  Nanoseconds NextPause() {
    if (options_.pause_ms == 0) return kNever;
    return Now() + static_cast<Nanoseconds>(1e6 * options_.pause_every_ms * std::exponential_distribution()(random_));
  }

  Nanoseconds NextDue() const {
    Nanoseconds due = kNever;
    for (const auto* paths : {&data_, &acks_}) {
      for (const Path& path : *paths) {
        if (!path.packets.empty()) due = std::min(due, path.packets.front().due);
      }
    }
    return due;
  }

  void Deliver() {
    for (auto* paths : {&data_, &acks_}) {
      for (Path& path : *paths) {
        for (Nanoseconds now; !path.packets.empty() && path.packets.front().due <= (now = Now());) {
          const Packet& packet = path.packets.front();
          const Nanoseconds late = std::max<Nanoseconds>(0, now - std::max(packet.due, resumed_));
          late_worst_ = std::max(late_worst_, late);
          late_sum_ns_ += static_cast<double>(late);
          ++delivered_;
          if (write(path.device, packet.content.data(), packet.bytes) < 0) FailCall("writing to a TUN device");
          path.packets.pop_front();
        }
      }
    }
  }

  /// Whether there was a packet.
  bool AcceptData() {
    Packet packet;
    const std::size_t flow = Read(senders_, 2, packet);
    if (flow == kNone) return false;
    if (flow == kOther) return true;
    const Nanoseconds now = Now();
    Account(now);
    while (!departures_.empty() && departures_.front() <= now) departures_.pop_front();
    if (departures_.size() > options_.buffer_packets) return true;  // dropped; one more than wait is being sent
    free_at_ = std::max(free_at_, now) +
               static_cast<Nanoseconds>(static_cast<double>(packet.bytes) * 8e3 / options_.rate_mbps);
    departures_.push_back(free_at_);
    packet.due = free_at_ + HalfRtt(flow);
    data_[flow].packets.push_back(packet);
    return true;
  }

  /// Whether there was a packet.
  bool AcceptAck() {
    Packet packet;
    const std::size_t flow = Read(receivers_, 0, packet);
    if (flow == kNone) return false;
    if (flow == kOther) return true;
    packet.due = Now() + HalfRtt(flow);
    acks_[flow].packets.push_back(packet);
    return true;
  }

  static constexpr std::size_t kNone = kMostFlows;
  static constexpr std::size_t kOther = kMostFlows + 1;

  /// The flow of the next packet, whose receiver's port is so many bytes into the TCP header.
  std::size_t Read(int device, std::size_t port_at, Packet& packet) const {
    const ssize_t bytes = read(device, packet.content.data(), packet.content.size());
    if (bytes < 0 && errno != EAGAIN) FailCall("reading from a TUN device");
    if (bytes <= 0) return kNone;
    packet.bytes = static_cast<std::size_t>(bytes);
    if (packet.bytes < kHeaderBytes || packet.content[0] >> 4U != 4 || packet.content[9] != IPPROTO_TCP) return kOther;
    const std::size_t at = 4U * (packet.content[0] & 15U) + port_at;
    const int flow = ((packet.content[at] << 8) | packet.content[at + 1]) - kFirstPort;
    return flow >= 0 && static_cast<std::size_t>(flow) < data_.size() ? static_cast<std::size_t>(flow) : kOther;
  }

  Nanoseconds HalfRtt(std::size_t flow) const { return static_cast<Nanoseconds>(5e5 * options_.flows[flow].rtt_ms); }

  /// Adds up queue and idle time since the last call: nothing has come, and the link is busy until `free_at_`.
  void Account(Nanoseconds now) {
    const Nanoseconds from = std::max(accounted_, measured_from_);
    accounted_ = now;
    if (now <= from) return;
    const auto elapsed = static_cast<double>(now - from);
    const double queue = static_cast<double>(std::max<Nanoseconds>(0, free_at_ - from));
    const double busy = std::min(queue, elapsed);
    queue_ns_ns_ += busy * (queue - busy / 2);
    idle_ns_ += elapsed - busy;
    measured_ns_ += elapsed;
  }

  const Options& options_;
  const int senders_, receivers_;  // devices
  const Nanoseconds measured_from_;
  std::atomic<bool> is_stopped_ = false;
  std::mt19937_64 random_{std::random_device{}()};

  std::deque<Nanoseconds> departures_;  // of what waits or is being sent
  std::vector<Path> data_, acks_;       // of each flow
  Nanoseconds free_at_ = 0;             // when the link has sent what it has
  Nanoseconds resumed_ = 0;

  Nanoseconds accounted_;
  double queue_ns_ns_ = 0, idle_ns_ = 0, measured_ns_ = 0;
  double late_sum_ns_ = 0, delivered_ = 0;
  Nanoseconds late_worst_ = 0;
};

}  // namespace

int main(int count, char** arguments) {
  const Options options = ParseOptions(count, arguments);
  alarm(static_cast<unsigned>(options.duration_s) + 10);  // its signal ends the process
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setpriority(PRIO_PROCESS, 0, -10);

  const int mtu = options.packet_bytes + kHeaderBytes;
  const std::size_t flows = options.flows.size();
  std::vector<int> listeners, senders;
  const int receivers_device = EnterNamespace(kReceivers, mtu);
  for (std::size_t i = 0; i < flows; ++i) listeners.push_back(Listen(i));
  const int senders_device = EnterNamespace(kSenders, mtu);
  for (const Flow& flow : options.flows) senders.push_back(SenderSocket(flow.cc));

  const Nanoseconds start = Now();
  Bottleneck bottleneck(options, senders_device, receivers_device, start);
  std::thread emulation([&bottleneck] { bottleneck.Run(); });
  std::vector<std::atomic<std::int64_t>> received_bytes(flows);
  for (std::size_t i = 0; i < flows; ++i) {
    std::thread([listener = listeners[i], &bytes = received_bytes[i]] { Receive(listener, bytes); }).detach();
    const Nanoseconds from = start + static_cast<Nanoseconds>(1e9 * options.flows[i].start_s);
    std::thread([sender = senders[i], i, from] { Send(sender, i, from); }).detach();
  }

  SleepUntil(start + static_cast<Nanoseconds>(5e8 * options.duration_s));
  const Nanoseconds half = Now();
  std::vector<std::int64_t> at_half(received_bytes.begin(), received_bytes.end());
  SleepUntil(start + static_cast<Nanoseconds>(1e9 * options.duration_s));
  const auto measured_ns = static_cast<double>(Now() - half);

  utsname kernel;
  uname(&kernel);
  std::ostringstream json;
  json << "{\"kernel\": \"" << kernel.release << "\", \"flows\": [";
  for (std::size_t i = 0; i < flows; ++i) {
    const Flow& flow = options.flows[i];
    json << (i > 0 ? ", " : "") << "{\"cc\": \"" << flow.cc << "\", \"rtt_ms\": " << flow.rtt_ms
         << ", \"start_s\": " << flow.start_s
         << ", \"mbps\": " << 8e3 * static_cast<double>(received_bytes[i] - at_half[i]) / measured_ns
         << ", \"retransmissions\": " << Retransmissions(senders[i]) << "}";
  }
  bottleneck.Stop();
  emulation.join();
  json << "], \"queue_ms\": " << bottleneck.queue_ms() << ", \"unused\": " << bottleneck.unused()
       << ", \"late_mean_ms\": " << bottleneck.late_mean_ms() << ", \"late_worst_ms\": " << bottleneck.late_worst_ms()
       << "}\n";
  std::fputs(json.str().c_str(), stdout);
  std::fflush(stdout);
  std::_Exit(0);  // the other threads wait for packets
}
