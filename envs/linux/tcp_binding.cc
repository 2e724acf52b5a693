#include "envs/linux/tcp_binding.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "envs/linux/clock.h"
#include "envs/linux/kernel_agent.h"
#include "envs/linux/tcp_reading.h"
#include "envs/model/scenario_binding.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace bbrgym {
namespace {

/// A TCP socket of the caller with the gains of an agent or a policy, and what its last row began with.
class SteeredSocket {
 public:
  SteeredSocket(int socket, const PlainScenario& flow, const std::string& agent_file)
      : socket_(socket), agent_(agent_file), input_(agent_.Control(socket, RecordFromDict<Flow>(flow))) {}

  std::vector<double> Row() {
    const Nanoseconds now = clock_.Now();
    const double seconds = static_cast<double>(now - row_start_) / 1e9;
    const TcpReading reading = Read();
    const TcpReading::Counts before = std::exchange(before_, reading.counts);
    FlowRow row = EmptyRow<FlowRow>();
    AddTcp(reading, before, seconds, static_cast<double>(reading.packet_bytes), row);
    row.is_active = 1.0;
    row.sent_packets = static_cast<double>(reading.counts.sent_packets - before.sent_packets);
    row.send_rate_mbps = row.sent_packets * static_cast<double>(reading.packet_bytes) * 8e-6 / seconds;
    // What is known of the receiver is what it has acknowledged.
    row.received_bytes = static_cast<double>(reading.counts.acknowledged_bytes - before.acknowledged_bytes);
    row.throughput_mbps = row.received_bytes * 8e-6 / seconds;
    row.arrived_bytes = row.inorder_bytes = std::numeric_limits<double>::quiet_NaN();
    row_start_ = now;
    ++input_.step;
    agent_.Write(socket_, input_);
    std::vector<double> values{static_cast<double>(now) / 1e9};
    const auto columns = ValuesOf(row);
    values.insert(values.end(), columns.begin(), columns.end());
    return values;
  }

  std::map<std::string, std::int64_t> Totals() const {
    const TcpReading reading = Read();
    return {{"received_bytes", reading.counts.acknowledged_bytes},
            {"arrived_bytes", reading.counts.delivered_bytes},
            {"arrived_packets", reading.counts.delivered_bytes / reading.packet_bytes},
            {"reordered_packets", reading.counts.reordered}};
  }

  void Open() { row_start_ = clock_.Now(); }
  std::int64_t PacketBytes() const { return Read().packet_bytes; }
  double Now() const { return static_cast<double>(clock_.Now()) / 1e9; }

 private:
  TcpReading Read() const {
    const auto reading = ReadTcp(socket_, "", &agent_, input_.step);
    if (!reading) throw std::runtime_error("the socket is not connected");
    return *reading;
  }

  EpisodeClock clock_;
  int socket_;
  KernelAgent agent_;
  agent_input input_;
  TcpReading::Counts before_;
  Nanoseconds row_start_ = 0;
};

}  // namespace

void BindTcp(nb::module_& m) {
  m.def(
      "fixed_policy",
      [](const nb::bytes& policy, double preference) {
        const fixed_policy fixed = FixedPolicy(*PolicyNetwork::Parse({policy.c_str(), policy.size()}), preference);
        return nb::bytes(&fixed, sizeof fixed);
      },
      "policy"_a, "preference"_a = 0.25,
      "Return a policy in integers, as `struct fixed_policy` of fixed_policy.h. Raises ValueError.");

  nb::class_<SteeredSocket>(m, "SteeredSocket", "A TCP socket whose gains come from an agent or a policy.")
      .def(nb::init<int, const PlainScenario&, const std::string&>(), "socket"_a, "flow"_a, "agent_file"_a,
           "`socket` is the descriptor of a TCP socket before it connects, and stays the caller's; `flow` is one of "
           "`Scenario.to_dict()`, its policy as bytes. Raises ValueError, or RuntimeError if the kernel refuses.")
      .def("open", &SteeredSocket::Open, "Begin the first row: the socket is connected.")
      .def("row", &SteeredSocket::Row,
           "Return [time_s, *FLOW_COLUMNS] since the last call. What the receiver has is what it acknowledged.")
      .def_prop_ro("totals", &SteeredSocket::Totals, "What the receiver has acknowledged, as `UdpSender.report`.")
      .def_prop_ro("packet_bytes", &SteeredSocket::PacketBytes, "Payload of a full packet.")
      .def_prop_ro("time_s", &SteeredSocket::Now, "Time since this object was made, in s.");
}

}  // namespace bbrgym
