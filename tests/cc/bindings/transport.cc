// The transport: what it tells a controller is recorded, and the controller decides what a test sets.

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "baselines/cc/registry.h"
#include "envs/transport/connection.h"
#include "envs/transport/receiver.h"
#include "envs/transport/reordering_window.h"
#include "envs/transport/sender.h"
#include "tests/cc/bindings/bind.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace bbrgym {
namespace {

struct Recording {
  Decision decision;
  bool takes_back = false;
  std::vector<std::string> calls;
  std::vector<AckEvent> acks;
  std::vector<std::tuple<Recovery, Nanoseconds, Bytes>> recoveries;
  std::vector<Nanoseconds> restarts;
};

class RecordingController final : public Controller {
 public:
  explicit RecordingController(std::shared_ptr<Recording> recording) : recording_(std::move(recording)) {}

  void OnAck(const AckEvent& ack) override {
    recording_->calls.emplace_back("ack");
    recording_->acks.push_back(ack);
  }
  void OnRecovery(Recovery state, Nanoseconds now, Bytes in_flight) override {
    recording_->calls.emplace_back("recovery");
    recording_->recoveries.emplace_back(state, now, in_flight);
  }
  bool OnSpuriousRecovery() override {
    recording_->calls.emplace_back("spurious");
    return recording_->takes_back;
  }
  void OnRestart(Nanoseconds now) override {
    recording_->calls.emplace_back("restart");
    recording_->restarts.push_back(now);
  }
  Decision decision() const override { return recording_->decision; }
  Metrics metrics() const override { return {}; }

 private:
  std::shared_ptr<Recording> recording_;
};

using Range = std::pair<PacketNumber, PacketNumber>;
using Sent = std::tuple<PacketNumber, std::uint64_t, std::int32_t, bool>;
using Counts = std::map<std::string, std::int64_t>;

std::optional<Nanoseconds> UnlessNever(Nanoseconds time) {
  return time == kNever ? std::nullopt : std::optional<Nanoseconds>(time);
}

AckPacket AckOf(const std::vector<Range>& ranges) {
  if (ranges.size() > AckPacket::kMaxRanges) {
    throw std::invalid_argument("an acknowledgement must have at most " + std::to_string(AckPacket::kMaxRanges) +
                                " ranges, got " + std::to_string(ranges.size()));
  }
  AckPacket ack;
  for (const auto& [low, high] : ranges) ack.ranges[ack.count++] = {low, high};
  return ack;
}

}  // namespace

void BindTransport(nb::module_& m) {
  nb::class_<Recording>(m, "Recording", "A controller that records its calls and decides what is set here.")
      .def(nb::init<>())
      .def_rw("decision", &Recording::decision)
      .def_rw("takes_back", &Recording::takes_back, "Whether it takes the reduction of a spurious recovery back.")
      .def_ro("calls", &Recording::calls, "'ack', 'recovery', 'spurious' and 'restart', in the order of the calls.")
      // By value: references to the vector's elements would dangle when it grows.
      .def_prop_ro("acks", [](const Recording& it) -> std::vector<AckEvent> { return it.acks; })
      .def_ro("recoveries", &Recording::recoveries, "State, time in ns, in flight in bytes.")
      .def_ro("restarts", &Recording::restarts, "Times in ns.");

  nb::class_<Sender>(m, "Sender", "The sending half of the transport; times in ns, amounts in bytes.")
      .def(
          "__init__",
          [](Sender* place, const std::string& algorithm, Nanoseconds initial_rtt, std::uint64_t seed,
             std::optional<Bytes> size_bytes) {
            const Connection connection{.initial_rtt = initial_rtt, .seed = seed, .policy = nullptr};
            new (place) Sender(MakeController(algorithm, connection), connection, size_bytes);
          },
          "algorithm"_a, "initial_rtt"_a = 0, "seed"_a = 1, "size_bytes"_a = nb::none(),
          "With a registered controller.")
      .def(
          "__init__",
          [](Sender* place, std::shared_ptr<Recording> recording, Nanoseconds initial_rtt,
             std::optional<Bytes> size_bytes, bool is_ecn_capable, std::optional<double> app_rate_mbps) {
            const Connection connection{.initial_rtt = initial_rtt, .policy = nullptr};
            Flow flow;
            flow.app_rate_mbps = app_rate_mbps;
            new (place) Sender(std::make_unique<RecordingController>(std::move(recording)), connection, size_bytes,
                               is_ecn_capable ? Ecn::kEct0 : Ecn::kNotEct, MakeAppSource(flow, connection, 0));
          },
          "recording"_a, "initial_rtt"_a = 0, "size_bytes"_a = nb::none(), "is_ecn_capable"_a = false,
          "app_rate_mbps"_a = nb::none())
      .def(
          "next_packet",
          [](Sender& sender, Nanoseconds now) -> std::optional<Sent> {
            DataPacket packet;
            if (!sender.NextPacket(now, packet)) return std::nullopt;
            return Sent(packet.number, packet.segment, packet.bytes, packet.is_retransmission);
          },
          "now"_a, "Return (number, segment, bytes, is_retransmission) of the packet that leaves now, or None.")
      .def(
          "on_ack",
          [](Sender& sender, Nanoseconds now, const std::vector<Range>& ranges, Bytes marked) {
            AckPacket ack = AckOf(ranges);
            ack.marked = marked;
            sender.OnAck(now, ack);
          },
          "now"_a, "ranges"_a, "marked"_a = 0,
          "Take ranges (low, high) of packet numbers, newest first, and the total of marked bytes. Raises ValueError.")
      .def("next_timer", [](const Sender& sender) { return UnlessNever(sender.NextTimer()); })
      .def("on_timer", &Sender::OnTimer, "now"_a)
      .def("stop", &Sender::Stop)
      .def("update_decision", &Sender::UpdateDecision, "Read the controller's decision again.")
      .def("decision", &Sender::decision)
      .def_prop_ro("in_flight", &Sender::in_flight)
      .def_prop_ro("is_all_delivered", &Sender::IsAllDelivered)
      .def("counts", [](const Sender& sender) -> Counts {
        const Sender::Counts& counts = sender.counts();
        return {{"sent_packets", counts.sent_packets}, {"retransmitted_packets", counts.retransmitted_packets},
                {"sent_bytes", counts.sent_bytes},     {"delivered_bytes", counts.delivered_bytes},
                {"lost_bytes", counts.lost_bytes},     {"marked_bytes", counts.marked_bytes},
                {"timeouts", counts.timeouts},         {"last_rtt", counts.last_rtt}};
      });

  nb::class_<ReorderingWindow>(m, "ReorderingWindow", "How much later than an RTT a packet is lost; times in ns.")
      .def(nb::init<>())
      .def_prop_ro("is_open", &ReorderingWindow::IsOpen)
      .def("on_late_arrival", &ReorderingWindow::OnLateArrival, "largest_acked"_a, "next_number"_a)
      .def("on_recovery_end", &ReorderingWindow::OnRecoveryEnd)
      .def("length", &ReorderingWindow::Length, "min_rtt"_a, "smoothed_rtt"_a);

  nb::class_<Receiver>(m, "Receiver", "The receiving half of the transport; times in ns, amounts in bytes.")
      .def(nb::init<>())
      .def(
          "on_packet",
          [](Receiver& receiver, Nanoseconds now, PacketNumber number, std::uint64_t segment, std::int32_t bytes,
             bool is_marked) {
            const Ecn ecn = is_marked ? Ecn::kCe : Ecn::kEct0;
            return receiver.OnPacket(now, {.number = number, .segment = segment, .bytes = bytes, .ecn = ecn});
          },
          "now"_a, "number"_a, "segment"_a, "bytes"_a, "is_marked"_a = false,
          "Return whether it must be acknowledged now.")
      .def("ack_due", [](const Receiver& receiver) { return UnlessNever(receiver.AckDue()); })
      .def("write_ack",
           [](Receiver& receiver) {
             AckPacket ack;
             receiver.WriteAck(ack);
             std::vector<Range> ranges;
             for (std::uint32_t i = 0; i < ack.count; ++i) ranges.emplace_back(ack.ranges[i].low, ack.ranges[i].high);
             return ranges;
           })
      .def_prop_ro("has_hole", &Receiver::HasHole)
      .def("counts", [](const Receiver& receiver) -> Counts {
        const Receiver::Counts& counts = receiver.counts();
        return {{"received", counts.received},
                {"arrived", counts.arrived},
                {"inorder", counts.inorder},
                {"marked", receiver.marked()}};
      });
}

}  // namespace bbrgym
