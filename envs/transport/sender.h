#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>

#include "baselines/cc/controller.h"
#include "envs/model/packet.h"
#include "envs/model/ring.h"

namespace bbrgym {

/// The sending half of the transport, around a congestion controller. It has no clock and does no input or output:
/// acknowledgements and times in, packets out, and the time at which it wants to be asked again.
///
/// Losses are found as RFC 9002 does (packet and time threshold, section 6.1; probe timeouts with backoff, 6.2;
/// persistent congestion, 7.6). Delivery rates are sampled after draft-cheng-iccrg-delivery-rate-estimation-02, with
/// what was in flight and lost when the sampled packet left. Fast recovery lasts as TCP's (RFC 6675): until all that
/// had been sent when it began is delivered, which is what the controllers' papers mean by it.
class Sender {
 public:
  static constexpr Nanoseconds kNever = INT64_MAX;

  /// Totals since the beginning.
  struct Counts {
    std::uint64_t sent_packets = 0;
    std::uint64_t retransmitted_packets = 0;
    Bytes sent_bytes = 0;
    Bytes delivered_bytes = 0;
    Bytes lost_bytes = 0;
    std::uint64_t timeouts = 0;
    Nanoseconds last_rtt = 0;
  };

  /// The RTT samples since `StartStep`.
  struct RttSamples {
    std::uint64_t count = 0;
    Nanoseconds sum = 0;
    Nanoseconds least = 0;
  };

  /// `size_bytes`: how much there is to send; nothing is endless.
  Sender(std::unique_ptr<Controller> controller, const Connection& connection, std::optional<Bytes> size_bytes);

  /// Gives the next packet if one may leave now; returns whether.
  bool NextPacket(Nanoseconds now, DataPacket& packet);

  void OnAck(Nanoseconds now, const AckPacket& ack);

  /// When `OnTimer` and `NextPacket` must be called if nothing else happens before.
  Nanoseconds NextTimer() const { return is_pace_blocked_ && pace_time_ < timer_ ? pace_time_ : timer_; }
  /// Acts on what is due at `now`: losses by time, probe timeouts. Nothing may be due. The controller hears at once of
  /// a recovery that begins, of the bytes lost with the next ACK.
  void OnTimer(Nanoseconds now);

  /// Sends nothing any more.
  void Stop() {
    is_stopped_ = true;
    timer_ = kNever;
    is_pace_blocked_ = false;
  }

  Controller& controller() { return *controller_; }
  const Controller& controller() const { return *controller_; }
  const Decision& decision() const { return decision_; }
  const Counts& counts() const { return counts_; }
  const RttSamples& rtt_samples() const { return rtts_; }
  void StartStep() { rtts_ = {}; }
  Bytes in_flight() const { return in_flight_; }
  bool is_stopped() const { return is_stopped_; }
  /// All there is to send has been acknowledged.
  bool IsAllDelivered() const { return segments_.begin() == total_segments_; }
  /// Reads the controller's decision again, after gains were set from outside.
  void UpdateDecision();

 private:
  enum class State : std::uint8_t { kInFlight, kAcked, kLost };

  // What is known of a segment.
  static constexpr std::uint8_t kArrived = 1;  // a packet with it was acknowledged; nothing else counts any more
  static constexpr std::uint8_t kMissing = 2;  // a packet with it was marked lost
  static constexpr std::uint8_t kQueued = 4;   // it waits in lost_segments_

  /// A packet as it left: a cache line each.
  struct alignas(64) Sent {
    Nanoseconds time;
    Nanoseconds first_sent;      // the beginning of the send phase of its sample
    Nanoseconds delivered_time;  // when `delivered` was reached
    Bytes delivered;
    Bytes lost;
    Bytes in_flight;  // itself included
    std::uint64_t segment;
    std::int32_t bytes;
    State state;
    bool is_app_limited;
  };

  bool HasNewSegment() const { return segments_.end() < total_segments_; }
  std::int32_t BytesOf(std::uint64_t segment) const;
  void Send(Nanoseconds now, DataPacket& packet);
  void DropRepairedSegments();
  void Deliver(Sent& packet);
  void DetectLosses(Nanoseconds now);
  void MarkLost(Sent& packet);
  void UpdateRecovery(Nanoseconds now);
  void EnterRecovery(Recovery state, Nanoseconds now);
  void PopResolved() {
    while (!packets_.IsEmpty() && packets_.Front().state != State::kInFlight) packets_.Pop();
  }
  void UpdateRtt(Nanoseconds rtt);
  RateSample SampleOf(Nanoseconds now, const Sent& newest) const;
  void MarkAppLimited();
  void SetTimer(Nanoseconds now);
  Nanoseconds ProbeTimeout() const { return probe_timeout_ << std::min(probes_in_a_row_, 10); }

  static constexpr PacketNumber kPacketThreshold = 3;  // RFC 9002, section 6.1.1
  static constexpr Nanoseconds kGranularity = kMillisecond;
  static constexpr int kPersistentCongestionThreshold = 3;  // section 7.6.1
  static constexpr std::uint64_t kEndless = UINT64_MAX;

  std::unique_ptr<Controller> controller_;
  Connection connection_;
  Decision decision_;
  std::uint64_t total_segments_ = kEndless;
  std::int32_t last_segment_bytes_ = 0;
  bool is_stopped_ = false;

  // Packets that are not known to be resolved from the oldest such on, by their number.
  Window<Sent> packets_;
  PacketNumber largest_acked_ = 0;
  bool has_acked_ = false;
  Bytes in_flight_ = 0;

  // Segments from the oldest unacknowledged one to the newest one sent.
  Window<std::uint8_t> segments_;
  Ring<std::uint64_t> lost_segments_;
  std::int64_t unrepaired_segments_ = 0;  // missing and not yet arrived

  Recovery recovery_ = Recovery::kOpen;
  std::uint64_t recovery_end_ = 0;

  // The sampler's connection state.
  Nanoseconds delivered_time_ = 0;
  Nanoseconds first_sent_time_ = 0;
  Bytes app_limited_ = 0;
  Nanoseconds min_rtt_ = kNever;

  Nanoseconds smoothed_rtt_ = 0;
  Nanoseconds rtt_variance_ = 0;
  Nanoseconds latest_rtt_ = 0;
  Nanoseconds probe_timeout_ = 999 * kMillisecond;  // before the first sample: section 6.2.2's initial RTT of 333 ms
  Nanoseconds first_rtt_time_ = kNever;

  Nanoseconds timer_ = kNever;  // of losses and probes
  bool is_loss_timer_ = false;
  Nanoseconds loss_time_ = kNever;
  Nanoseconds last_sent_time_ = 0;
  int probes_in_a_row_ = 0;
  int probes_to_send_ = 0;
  bool is_fast_retransmit_due_ = false;  // recovery has just begun
  Nanoseconds lost_span_ = 0;            // the longest time over which all was lost, of the losses found last

  Nanoseconds pace_time_ = 0;
  Bytes burst_ = 0;
  bool is_burst_over_ = false;
  bool is_pace_blocked_ = false;

  Bytes lost_on_ack_ = 0;
  Counts counts_;
  RttSamples rtts_;
};

}  // namespace bbrgym
