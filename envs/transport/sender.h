#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>

#include "baselines/cc/controller.h"
#include "baselines/cc/rtt_sample.h"
#include "envs/model/packet.h"
#include "envs/model/ring.h"
#include "envs/transport/app_source.h"
#include "envs/transport/reordering_window.h"
#include "envs/transport/window_usage.h"

namespace bbrgym {

/// The sending half of the transport, with its congestion controller. It has no clock and does no I/O: acknowledgements
/// and times go in; packets come out, and the time of the next call.
///
/// Losses are detected as in RFC 9002: packet and time thresholds (section 6.1), probe timeouts with backoff (6.2),
/// persistent congestion (7.6). The thresholds adapt to reordering as those of RACK (RFC 8985). Delivery rates are
/// sampled as in draft-cheng-iccrg-delivery-rate-estimation-02, with the bytes in flight and lost when the sampled
/// packet was sent. Fast recovery is that of TCP (RFC 6675), which the papers of the controllers assume: it lasts until
/// everything that had been sent when it began is delivered.
class Sender {
 public:
  /// Totals, and the latest RTT sample (0 before the first).
  struct Counts {
    std::uint64_t sent_packets = 0;
    std::uint64_t retransmitted_packets = 0;
    Bytes sent_bytes = 0;
    Bytes delivered_bytes = 0;
    Bytes lost_bytes = 0;
    Bytes marked_bytes = 0;  ///< of the delivered ones, as far as the receiver has reported it
    std::uint64_t timeouts = 0;
    Nanoseconds last_rtt = 0;
  };

  /// The RTT samples since `StartStep`.

  /// `size_bytes`: how much there is to send; without a value, data is endless. `ecn`: of the packets. `source`: when
  /// the application writes the data; without one, everything is there at once.
  Sender(std::unique_ptr<Controller> controller, const Connection& connection, std::optional<Bytes> size_bytes,
         Ecn ecn = Ecn::kNotEct, std::optional<AppSource> source = std::nullopt);

  /// Sends the next packet if one may leave now; returns whether it did.
  bool NextPacket(Nanoseconds now, DataPacket& packet);

  void OnAck(Nanoseconds now, const AckPacket& ack);

  /// When to call `OnTimer` and `NextPacket` if nothing else happens first.
  Nanoseconds NextTimer() const { return std::min(wake_, timer_); }
  /// Acts on what is due at `now`, if anything: losses by time, probe timeouts. The controller learns of a new recovery
  /// at once, and of the lost bytes with the next ACK.
  void OnTimer(Nanoseconds now);

  /// Ends sending for good. Acknowledgements still count.
  void Stop() {
    is_stopped_ = true;
    timer_ = wake_ = kNever;
  }

  Controller& controller() { return *controller_; }
  const Controller& controller() const { return *controller_; }
  const Decision& decision() const { return decision_; }
  const Counts& counts() const { return counts_; }
  const RttSample& rtt_samples() const { return rtts_; }
  void StartStep() { rtts_ = {}; }
  Bytes in_flight() const { return in_flight_; }
  /// Whether everything there was to send has been acknowledged.
  bool IsAllDelivered() const { return segments_.begin() == total_segments_; }
  /// Payload acknowledged without a gap.
  Bytes acknowledged_in_order() const;
  /// Reads the controller's decision again, after a change of its gains.
  void UpdateDecision();

 private:
  enum class State : std::uint8_t { kInFlight, kAcked, kLost };

  // Flags of a segment.
  static constexpr std::uint8_t kArrived = 1;  // a packet with it was acknowledged; the other flags no longer count
  static constexpr std::uint8_t kMissing = 2;  // a packet with it was marked lost
  static constexpr std::uint8_t kQueued = 4;   // it waits to be sent again

  /// A packet as it was sent; it fills one cache line.
  struct alignas(64) Sent {
    Nanoseconds time;
    Nanoseconds first_sent;      // start of the send phase of its sample
    Nanoseconds delivered_time;  // when `delivered` was reached
    Bytes delivered;
    Bytes lost;
    Bytes in_flight;  // including itself
    std::uint64_t segment;
    std::uint32_t marked;  // modulo 2^32: more than a round trip can mark
    std::uint16_t bytes;
    State state;
    bool is_app_limited;
  };

  struct Lost {
    PacketNumber number;
    std::uint64_t segment;
    bool has_arrived;
  };

  /// Packets whose time may be won back: the burst that RFC 9002, section 7.7, allows.
  static constexpr Bytes kMostWonBack = 10;

  bool HasNewSegment() const { return segments_.end() < written_segments_; }
  bool IsMoreWritten(Nanoseconds now);
  bool IsNextBurstHeld(Nanoseconds now) const;
  std::int32_t BytesOf(std::uint64_t segment) const;
  void Send(Nanoseconds now, DataPacket& packet);
  void Queue(std::uint64_t segment);
  void CheckLostPackets(const AckPacket& ack);
  void RememberLost(PacketNumber number, std::uint64_t segment);
  /// Returns the place of the first packet of `lost_packets_` with this number or a later one.
  std::size_t FirstLostFrom(PacketNumber number);
  /// Keeps the ranges of an acknowledgement that has more than one.
  void Remember(const AckPacket& ack);
  /// Returns the next number after this one that the acknowledgement before did not have in the same range.
  PacketNumber NextUnknown(PacketNumber number) const;
  void Deliver(Sent& packet);
  void Arrive(std::uint64_t segment);
  Bytes TakeMarks(const AckPacket& ack, Bytes acked);
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
  /// A sender that loses nearly everything may have a recovery that never ends.
  static constexpr std::size_t kMostLost = std::size_t{1} << 16;

  std::unique_ptr<Controller> controller_;
  Connection connection_;
  Decision decision_;
  Ecn ecn_;
  std::uint64_t total_segments_ = kEndless;
  std::uint64_t written_segments_ = kEndless;  // by the application, as far as was asked
  std::int32_t last_segment_bytes_ = 0;
  bool is_stopped_ = false;

  // Packets by number, from the oldest one that is neither acknowledged nor lost.
  Window<Sent> packets_;
  PacketNumber largest_acked_ = 0;
  bool has_acked_ = false;
  AckPacket known_;  // the ranges of the last acknowledgement, if it had more than one
  ReorderingWindow reordering_;
  WindowUsage window_usage_;
  Bytes in_flight_ = 0;

  // Flags of the segments, from the oldest unacknowledged one to the newest one sent.
  Window<std::uint8_t> segments_;
  std::int64_t queued_segments_ = 0;
  std::uint64_t first_queued_ = 0;        // no segment below it is queued
  std::int64_t unrepaired_segments_ = 0;  // missing and not arrived since

  Recovery recovery_ = Recovery::kOpen;
  std::uint64_t recovery_end_ = 0;
  // The latest in this recovery, by their numbers, from the oldest that has not arrived; and whether older ones are
  // forgotten, so that it counts as justified.
  Ring<Lost> lost_packets_;
  bool is_lost_for_good_ = false;

  // State of the delivery-rate sampler.
  Nanoseconds delivered_time_ = 0;
  Nanoseconds first_sent_time_ = 0;
  Bytes app_limited_ = 0;
  Nanoseconds min_rtt_ = kNever;

  Nanoseconds smoothed_rtt_ = 0;
  Nanoseconds rtt_variance_ = 0;
  Nanoseconds latest_rtt_ = 0;
  Nanoseconds probe_timeout_ = 999 * kMillisecond;  // before the first sample: section 6.2.2's initial RTT of 333 ms
  Nanoseconds first_rtt_time_ = kNever;

  Nanoseconds timer_ = kNever;  // for losses by time and for probes
  bool is_loss_timer_ = false;
  Nanoseconds loss_time_ = kNever;
  Nanoseconds last_sent_time_ = 0;
  int probes_in_a_row_ = 0;
  int probes_to_send_ = 0;
  bool is_fast_retransmit_due_ = false;  // recovery has just begun
  Nanoseconds lost_span_ = 0;            // longest time in which everything sent was lost, of the latest losses

  Nanoseconds pace_time_ = 0;
  Bytes burst_ = 0;
  // The time that late timers take is won back, up to half of each pause, as in Linux's tcp_update_skb_after_send, but
  // over many pauses. Simulated timers are never late.
  Nanoseconds late_ = 0;       // how much is to be won back
  Nanoseconds won_back_ = 0;   // of it, by the pause after this burst
  bool is_pace_next_ = false;  // nothing but the pace has held up the next burst
  bool is_burst_over_ = false;
  Nanoseconds wake_ = kNever;  // when the pace, or the application, lets the next packet leave

  Bytes lost_on_ack_ = 0;
  Counts counts_;
  RttSample rtts_;
  std::optional<AppSource> source_;
};

}  // namespace bbrgym
