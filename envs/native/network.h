#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "envs/model/bottleneck.h"
#include "envs/model/earliest.h"
#include "envs/model/further_links.h"
#include "envs/model/reordering.h"
#include "envs/model/return_path.h"
#include "envs/model/ring.h"
#include "envs/model/scenario.h"
#include "envs/transport/delivery.h"
#include "envs/transport/flow_row.h"
#include "envs/transport/handshake.h"
#include "envs/transport/receiver.h"
#include "envs/transport/sender.h"

namespace bbrgym {

/// One Scenario, simulated event by event: senders, the bottleneck, receivers, and return paths, which keep the order;
/// maybe a second and a reverse link. Scenario, seed and gains determine everything.
///
/// The whole base RTT of a flow lies behind the bottleneck: a packet reaches the queue as it leaves the sender.
/// Compared with a dumbbell, which has half of the delay in front of the bottleneck, this only shifts each sender's
/// clock. What a sender does by the scenario's clock (handshake and stop) therefore happens later here, at the time
/// when it would reach the queue of a dumbbell. The clocks of the second and of the reverse link are those of the
/// receivers, so that no delay lies between the bottleneck and them. A flow in the other direction has two delays of
/// the link between the reverse link and its receiver, and the rest of its base RTT behind the bottleneck.
class Network {
 public:
  Network() = default;
  Network(const Network&) = delete;  // flows point to links
  Network& operator=(const Network&) = delete;

  /// Starts the scenario at time 0. Throws std::invalid_argument if it cannot be simulated.
  void Reset(std::shared_ptr<const Scenario> scenario, std::uint64_t seed);

  /// Sets the gains of an agent's flow. Throws std::out_of_range or std::invalid_argument.
  void SetGains(std::int64_t flow, double cwnd_gain, double pacing_gain);

  /// Takes the scenario's loss, jitters and changes of the rate that lie ahead as they are now: whoever gave the
  /// scenario has changed them since the reset, or since the last call.
  void TakeChanges();

  /// Simulates for `duration`, or to the end. Throws std::logic_error before the first reset.
  void Step(Nanoseconds duration);

  /// Which flow's decisions are void, and why; empty if none.
  std::string Fault() const;

  const Scenario& scenario() const { return *scenario_; }
  Nanoseconds now() const { return now_; }
  bool IsComplete() const { return !flows_.empty() && open_flows_ == 0 && IsOver(); }
  bool IsOver() const { return now_ >= end_; }

  // Rows of the last step.
  LinkRow GetLinkRow();
  FlowRow GetFlowRow(std::size_t flow) const;

 private:
  struct Ack {
    Nanoseconds time = 0;
    AckPacket packet;
  };

  /// A packet that others overtake behind the link.
  struct LatePacket {
    Nanoseconds arrival = 0;
    Bottleneck::Item item;
  };

  enum class Phase : std::uint8_t { kBefore, kConnecting, kOpen, kEnded };

  struct FlowState {
    Phase phase = Phase::kBefore;
    Route route;
    Nanoseconds shift = 0;    // delay from the sender to the queue of a dumbbell
    Nanoseconds arrival = 0;  // delay from the last link of a dumbbell to the receiver
    Nanoseconds start = 0;
    Nanoseconds end = kNever;      // stop_s, or when all was delivered
    Nanoseconds silence = kNever;  // when the sender stops
    Nanoseconds hello = kNever;    // when the next packet of the handshake reaches the queue
    Nanoseconds hello_timeout = kFirstHelloTimeout;
    Nanoseconds answer = kNever;  // when the answer to the hello sent at `answered` arrives
    Nanoseconds answered = 0;
    std::uint64_t seed = 0;
    std::optional<Gains> gains;
    std::unique_ptr<Sender> sender;
    Receiver receiver;
    Delivery delivery;  // by the clocks of a dumbbell's hosts
    ReturnPath path;    // of the whole RTT
    Ring<Ack> acks{32};
    FlowCounts before;  // at the start of the step

    /// When the next acknowledgement arrives at the sender or is due at the receiver.
    Nanoseconds NextAck() const { return std::min(acks.IsEmpty() ? kNever : acks.Front().time, receiver.AckDue()); }
  };

  /// What a scenario with one link does not have.
  struct Further {
    explicit Further(const Scenario& scenario)
        : links(scenario), reverse_delay(FromMilliseconds(2.0 * scenario.LinkDelayMs())), acks(scenario.flows.size()) {}

    /// An acknowledgement in a link.
    struct QueuedAck {
      PacketNumber number = 0;
      AckPacket packet;
    };
    /// A packet between the reverse link and its receiver.
    struct Arrival {
      Nanoseconds time = 0;
      Bottleneck::Item item;
    };

    FurtherLinks links;
    Nanoseconds reverse_delay;          // between the reverse link and the receivers behind it
    Ring<Arrival> arrivals;             // in order: all have the same delay
    std::vector<Ring<QueuedAck>> acks;  // of each flow; the link may have dropped some of them
    PacketNumber last_ack = 0;

    Nanoseconds NextEvent() const {
      return std::min(links.NextDeparture(), arrivals.IsEmpty() ? kNever : arrivals.Front().time);
    }
  };

  void RunUntil(Nanoseconds end);
  void RunFurtherLinks();
  void SetNextRate(std::size_t index);
  void UpdateRare();
  void RunRare();
  void Depart();
  void Arrive(const Bottleneck::Item& item);
  void HoldBack(const Bottleneck::Item& item, Nanoseconds delay);
  void Forward(const Bottleneck::Item& item);
  void Receive(const Bottleneck::Item& item);
  void RunFlow(std::size_t index, Nanoseconds now);
  void Pump(std::size_t index, FlowState& flow, Nanoseconds now);
  void SendAck(FlowState& flow, Nanoseconds now);
  bool Deliver(FlowState& flow, Nanoseconds now);
  void QueueAck(FlowState& flow, Nanoseconds now);
  void ReturnAck(const Bottleneck::Item& item);
  void AnswerHello(std::size_t index, std::uint64_t sent);
  void UpdateNext(std::size_t index, const FlowState& flow);
  void SendHello(std::size_t index, FlowState& flow, Nanoseconds now);
  void Connect(std::size_t index, FlowState& flow);
  void End(FlowState& flow, Nanoseconds now);

  std::shared_ptr<const Scenario> scenario_ = std::make_shared<const Scenario>();  // without flows before a reset
  std::vector<FlowState> flows_;
  Bottleneck link_;
  Reordering reordering_;
  Ring<LatePacket> late_{16};         // in the order in which they arrive
  std::unique_ptr<Further> further_;  // null: there is one link
  Earliest next_;
  Nanoseconds now_ = 0;
  Nanoseconds step_start_ = 0;
  Nanoseconds end_ = 0;
  std::size_t next_rate_ = 0;
  Nanoseconds next_change_ = kNever;  // when the link gets its next rate
  Nanoseconds next_rare_ = kNever;    // this, or when a late packet arrives
  std::size_t open_flows_ = 0;        // endless, or have not delivered all their bytes
  Nanoseconds last_completion_ = 0;
};

}  // namespace bbrgym
