#include "envs/linux/udp_binding.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <netdb.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "envs/linux/serve.h"
#include "envs/linux/udp_receiver.h"
#include "envs/linux/udp_sender.h"
#include "envs/model/scenario_binding.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace bbrgym {
namespace {

/// Serves an end for `duration`, or until `has_changed`. Ctrl-C ends it soon.
template <typename End, typename HasChanged>
void ServeOne(const char* name, End& end, const EpisodeClock& clock, Nanoseconds duration, HasChanged has_changed) {
  constexpr Nanoseconds kSignalCheck = 50 * kMillisecond;
  std::vector<pollfd> descriptors{{end.socket(), POLLIN, 0}};
  const Nanoseconds until = clock.Now() + std::clamp<Nanoseconds>(duration, 0, kNever / 2);
  do {
    {
      const nb::gil_scoped_release release;
      const Nanoseconds pause = std::min(until, clock.Now() + kSignalCheck);
      const auto work = [&] {
        end.Work(clock);
        return std::min(end.NextTime(), pause);
      };
      Serve(name, descriptors, clock, work, [&] { return has_changed() || pause <= clock.Now(); });
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  } while (!has_changed() && clock.Now() < until);
}

double SecondsOf(Nanoseconds time) {
  return static_cast<double>(time) / 1e9;
}

/// The sending end of one flow, its clock, and what its last row began with.
class UdpFlow {
 public:
  UdpFlow(int socket, const PlainScenario& flow, std::int64_t packet_bytes, std::uint64_t seed)
      : packet_bytes_(packet_bytes),
        sender_(FileDescriptor(socket), RecordFromDict<Flow>(flow), packet_bytes, seed, 0, kNever) {}

  void Wait(Nanoseconds duration) {
    const UdpSender::Phase before = sender_.phase();
    ServeOne("bbrgym-send", sender_, clock_, duration, [&] { return sender_.phase() != before || IsAllDelivered(); });
  }

  void Finish() { sender_.Finish(clock_.Now()); }

  std::vector<double> Row() {
    const Nanoseconds now = clock_.Now();
    Sender* sender = sender_.sender();
    row_start_ = std::max(row_start_, sender_.opened());
    const Receiver elsewhere;
    const double seconds = SecondsOf(now - row_start_);
    FlowRow row = MakeFlowRow({.seconds = seconds,
                               .active_share = 1.0,
                               .packet_bytes = packet_bytes_,
                               .is_open = sender_.IsOpen(),
                               .before = before_},
                              ReadingOf(sender, elsewhere, Delivery()));
    // What is known of the receiver is what it has acknowledged.
    const Bytes acknowledged = sender ? sender->acknowledged_in_order() : 0;
    row.received_bytes = static_cast<double>(acknowledged - acknowledged_before_);
    row.throughput_mbps = seconds > 0.0 ? row.received_bytes * 8e-6 / seconds : 0.0;
    row.arrived_bytes = row.inorder_bytes = std::numeric_limits<double>::quiet_NaN();
    row_start_ = now;
    before_ = CountsOf(sender, elsewhere);
    acknowledged_before_ = acknowledged;
    if (sender) {
      if (const std::string* fault = sender->controller().Fault()) throw std::invalid_argument(*fault);
      sender->StartStep();
    }
    std::vector<double> values{SecondsOf(now)};
    const auto columns = ValuesOf(row);
    values.insert(values.end(), columns.begin(), columns.end());
    return values;
  }

  bool IsAllDelivered() { return sender_.sender() != nullptr && sender_.sender()->IsAllDelivered(); }
  double Now() const { return SecondsOf(clock_.Now()); }
  double Opened() const { return SecondsOf(sender_.opened()); }
  double Silence() const { return SecondsOf(clock_.Now() - sender_.last_heard()); }
  const UdpSender& sender() const { return sender_; }

 private:
  EpisodeClock clock_;
  std::int64_t packet_bytes_;
  UdpSender sender_;
  Nanoseconds row_start_ = 0;
  FlowCounts before_;
  Bytes acknowledged_before_ = 0;
};

/// The receiving end and its clock.
class UdpServer {
 public:
  UdpServer(int socket, const std::pair<std::uint64_t, std::uint64_t>& key, Nanoseconds silence_limit)
      : receiver_(FileDescriptor(socket), SipKey{key.first, key.second}, silence_limit) {}

  void Wait(Nanoseconds duration) {
    const UdpReceiver::Phase before = receiver_.phase();
    ServeOne("bbrgym-receive", receiver_, clock_, duration, [&] { return receiver_.phase() != before; });
  }

  std::string Sender() const {
    const sockaddr_storage& address = receiver_.sender();
    std::array<char, NI_MAXHOST> host;
    std::array<char, NI_MAXSERV> port;
    const bool is_ipv6 = address.ss_family == AF_INET6;
    if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), is_ipv6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in),
                    host.data(), host.size(), port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
      return "";
    }
    const std::string name(host.data());
    return (is_ipv6 ? "[" + name + "]" : name) + ":" + port.data();
  }

  double Now() const { return SecondsOf(clock_.Now()); }
  UdpReceiver& receiver() { return receiver_; }

 private:
  EpisodeClock clock_;
  UdpReceiver receiver_;
};

using Totals = nb::typed<nb::dict, std::string, std::uint64_t>;

Totals TotalsOf(const wire::Report& report) {
  Totals totals;
  totals["received_bytes"] = report.received_bytes;
  totals["arrived_bytes"] = report.arrived_bytes;
  totals["arrived_packets"] = report.arrived_packets;
  totals["reordered_packets"] = report.reordered_packets;
  return totals;
}

const char* NameOf(UdpSender::Phase phase) {
  switch (phase) {
    case UdpSender::Phase::kBefore:
    case UdpSender::Phase::kConnecting:
      return "connecting";
    case UdpSender::Phase::kOpen:
      return "open";
    case UdpSender::Phase::kEnding:
      return "ending";
    case UdpSender::Phase::kBusy:
      return "busy";
    case UdpSender::Phase::kOver:
      break;
  }
  return "over";
}

const char* NameOf(UdpReceiver::Phase phase) {
  switch (phase) {
    case UdpReceiver::Phase::kWaiting:
      return "waiting";
    case UdpReceiver::Phase::kReceiving:
      return "receiving";
    case UdpReceiver::Phase::kReported:
      return "reported";
    case UdpReceiver::Phase::kOver:
      break;
  }
  return "over";
}

}  // namespace

void BindUdp(nb::module_& m) {
  nb::class_<UdpFlow>(m, "UdpSender", "The sending end of a flow over UDP (docs/wire.md). For one thread at a time.")
      .def(nb::init<int, const PlainScenario&, std::int64_t, std::uint64_t>(), "socket"_a, "flow"_a, "packet_bytes"_a,
           "seed"_a,
           "`socket` is the descriptor of a connected UDP socket that does not block; it is closed with this object. "
           "`flow` is one of `Scenario.to_dict()`, its policy as bytes. Raises ValueError.")
      .def("wait", &UdpFlow::Wait, "duration_ns"_a,
           "Send and receive for this long, or until the phase changes or all is acknowledged; at least once.")
      .def("finish", &UdpFlow::Finish, "Send no more data, and ask for the receiver's report.")
      .def("row", &UdpFlow::Row,
           "Return [time_s, *FLOW_COLUMNS] of an open flow, since the last call. What the receiver has is what it "
           "acknowledged.")
      .def_prop_ro(
          "phase", [](const UdpFlow& it) { return NameOf(it.sender().phase()); },
          "'connecting', 'open', 'ending' (waits for the report), 'over', or 'busy': the receiver has another sender.")
      .def_prop_ro("time_s", &UdpFlow::Now, "Time since this object was made, in s.")
      .def_prop_ro("opened_s", &UdpFlow::Opened, "When the handshake ended and the first row began, in s.")
      .def_prop_ro("is_all_delivered", &UdpFlow::IsAllDelivered)
      .def_prop_ro("silence_s", &UdpFlow::Silence, "For how long nothing was heard of the receiver, in s.")
      .def_prop_ro(
          "report",
          [](const UdpFlow& it) -> std::optional<Totals> {
            if (!it.sender().report()) return std::nullopt;
            return TotalsOf(*it.sender().report());
          },
          "What the receiver says that has arrived; None until then.")
      .def_prop_ro(
          "refused", [](const UdpFlow& it) { return it.sender().refused(); },
          "Datagrams that were no part of the flow, or that the kernel did not take.")
      .def_prop_ro(
          "error",
          [](const UdpFlow& it) -> std::string {
            return it.sender().error() ? std::strerror(it.sender().error()) : "";
          },
          "The last error of the socket in words; empty without one.");

  nb::class_<UdpServer>(m, "UdpReceiver",
                        "The receiving end of flows over UDP, one at a time (docs/wire.md). For one thread at a time.")
      .def(nb::init<int, const std::pair<std::uint64_t, std::uint64_t>&, Nanoseconds>(), "socket"_a, "key"_a,
           "silence_limit_ns"_a,
           "`socket` is the descriptor of a bound UDP socket that does not block; it is closed with this object. `key` "
           "makes the tokens that prove addresses. A sender that is silent for the limit is gone.")
      .def("wait", &UdpServer::Wait, "duration_ns"_a,
           "Receive and acknowledge for this long, or until the phase changes; at least once.")
      .def(
          "release", [](UdpServer& it) { it.receiver().Release(); }, "Forget the sender, so that another is served.")
      .def_prop_ro(
          "phase", [](UdpServer& it) { return NameOf(it.receiver().phase()); },
          "'waiting', 'receiving', 'reported' (the sender has ended, and may ask for the report again) or 'over'.")
      .def_prop_ro("time_s", &UdpServer::Now, "Time since this object was made, in s.")
      .def_prop_ro("sender", &UdpServer::Sender, "HOST:PORT of the sender.")
      .def_prop_ro(
          "report", [](UdpServer& it) { return TotalsOf(it.receiver().report()); }, "What has arrived of the flow.")
      .def_prop_ro(
          "sent",
          [](UdpServer& it) -> std::optional<std::pair<std::uint64_t, std::uint64_t>> {
            const std::optional<wire::Sent>& sent = it.receiver().sent();
            if (!sent) return std::nullopt;
            return std::pair{sent->packets, sent->bytes};
          },
          "(packets, bytes) that the sender says it has sent; None until it has ended.")
      .def_prop_ro(
          "refused", [](UdpServer& it) { return it.receiver().refused(); }, "Datagrams that were no part of a flow.");
}

}  // namespace bbrgym
