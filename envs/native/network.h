#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "envs/model/ack_jitter.h"
#include "envs/model/bottleneck.h"
#include "envs/model/ring.h"
#include "envs/model/scenario.h"
#include "envs/native/earliest.h"
#include "envs/transport/flow_row.h"
#include "envs/transport/receiver.h"
#include "envs/transport/sender.h"

namespace bbrgym {

/// One Scenario, simulated event by event: senders, the bottleneck in front of them, receivers, and pipes of constant
/// delay back, or of a delay that jitters but keeps the order. Everything that happens follows from the scenario, the
/// seed and the gains.
///
/// A flow's whole base RTT lies behind the bottleneck, so that its packets are in the queue when they leave the sender.
/// Nothing but a shift of each sender's clock tells that from a delay in front of it; what a sender does by the
/// scenario's clock, its handshake and its stop, it therefore does when that would have reached the queue of a dumbbell
/// with as much delay on both sides.
class Network {
 public:
  /// Starts the scenario at time 0. Throws std::invalid_argument for an algorithm, parameter or queue that does not
  /// exist.
  void Reset(Scenario scenario, std::uint64_t seed);

  /// Sets the gains of an agent's flow from now on. Throws std::out_of_range or std::invalid_argument.
  void Steer(std::int64_t flow, double cwnd_gain, double pacing_gain);

  /// Simulates so much more, or to the end. Throws std::logic_error before the first reset.
  void Step(Nanoseconds duration);

  const Scenario& scenario() const { return scenario_; }
  Nanoseconds now() const { return now_; }
  bool IsComplete() const { return !flows_.empty() && open_flows_ == 0 && unfinished_flows_ == 0; }
  bool IsOver() const { return IsComplete() || now_ >= end_; }

  // Rows of the last step.
  LinkRow GetLinkRow() { return link_.GetRow(now_); }
  FlowRow GetFlowRow(std::size_t flow) const;

 private:
  struct Ack {
    Nanoseconds time = 0;
    AckPacket packet;
  };

  static constexpr Nanoseconds kHelloTimeout = 1'000 * kMillisecond;  // as TCP's SYN: RFC 6298, section 2.1
  static constexpr Nanoseconds kLongestHelloTimeout = 64 * kHelloTimeout;

  enum class Phase : std::uint8_t { kBefore, kConnecting, kOpen, kEnded };

  struct FlowState {
    Phase phase = Phase::kBefore;
    Nanoseconds rtt = 0;
    Bytes size = INT64_MAX;
    Nanoseconds shift = 0;  // from the sender to the queue
    Nanoseconds start = 0;
    Nanoseconds end = INT64_MAX;      // by the scenario, or when all was delivered
    Nanoseconds silence = INT64_MAX;  // when the sender stops
    Nanoseconds hello = INT64_MAX;    // when the handshake's next packet reaches the queue
    Nanoseconds hello_timeout = kHelloTimeout;
    Nanoseconds answer = INT64_MAX;  // when the answer to the one that was sent at `answered` comes
    Nanoseconds answered = 0;
    std::uint64_t seed = 0;
    bool is_complete = false;
    bool is_steered = false;
    double cwnd_gain = 0.0;
    double pacing_gain = 0.0;
    std::unique_ptr<Sender> sender;
    Receiver receiver;
    AckJitter jitter;
    Ring<Ack> acks{32};
    FlowCounts before;  // at the start of the step

    /// When the next acknowledgement arrives, or is due to leave.
    Nanoseconds NextAck() const { return std::min(acks.IsEmpty() ? INT64_MAX : acks.Front().time, receiver.AckDue()); }
  };

  void RunUntil(Nanoseconds end);
  void SetNextRate(std::size_t index);
  void Depart();
  void RunFlow(std::size_t index, Nanoseconds now);
  void Pump(std::size_t index, FlowState& flow, Nanoseconds now);
  void SendAck(FlowState& flow, Nanoseconds now);
  void UpdateNext(std::size_t index, const FlowState& flow);
  void SendHello(std::size_t index, FlowState& flow, Nanoseconds now);
  void Connect(std::size_t index, FlowState& flow);
  void End(FlowState& flow, Nanoseconds now);
  double ActiveShare(const FlowState& flow) const;

  Scenario scenario_;
  std::vector<FlowState> flows_;
  Bottleneck link_;
  Earliest next_;
  Nanoseconds now_ = 0;
  Nanoseconds step_start_ = 0;
  Nanoseconds end_ = 0;
  std::size_t next_rate_ = 0;
  Nanoseconds next_change_ = INT64_MAX;  // when the link gets its next rate
  std::size_t open_flows_ = 0;           // finite flows that have not delivered all
  std::size_t unfinished_flows_ = 0;     // endless flows
};

}  // namespace bbrgym
