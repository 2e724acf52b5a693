#include "envs/transport/sender.h"

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <utility>

#include "envs/transport/held_burst.h"
#include "envs/transport/receiver.h"

namespace bbrgym {

Sender::Sender(std::unique_ptr<Controller> controller, const Connection& connection, std::optional<Bytes> size_bytes,
               Ecn ecn, std::optional<AppSource> source)
    : controller_(std::move(controller)),
      connection_(connection),
      decision_(controller_->decision()),
      ecn_(ecn),
      source_(source) {
  if (size_bytes) {
    const auto size = static_cast<std::uint64_t>(*size_bytes);
    const auto full = static_cast<std::uint64_t>(connection.packet_bytes);
    total_segments_ = (size + full - 1) / full;
    last_segment_bytes_ = static_cast<std::int32_t>(size - (total_segments_ - 1) * full);
  }
  written_segments_ = source_ ? 0 : total_segments_;
  // As in TCP, the RTT of the handshake is the first sample of the estimator (RFC 6298, equation 2.2).
  if (connection.initial_rtt > 0) UpdateRtt(connection.initial_rtt);
}

bool Sender::NextPacket(Nanoseconds now, DataPacket& packet) {
  wake_ = kNever;
  if (is_stopped_) return false;
  if (probes_to_send_ > 0) {
    // A probe leaves regardless of window and pace (RFC 9002, section 7.5).
    --probes_to_send_;
    // It carries what the receiver waits for (RFC 6298, section 5.4), although its repair may still be in flight.
    if (unrepaired_segments_ > 0) Queue(segments_.begin());
    Send(now, packet);
    return true;
  }
  if (std::exchange(is_fast_retransmit_due_, false) && queued_segments_ > 0) {
    // However small the window is now: RFC 9002, section 7.3.2; for TCP RFC 6675, section 5, step 4.3.
    Send(now, packet);
    return true;
  }
  if (queued_segments_ == 0 && !HasNewSegment() && !IsMoreWritten(now)) {
    // Draft-cheng-iccrg-delivery-rate-estimation-02, section 3.4: all of its conditions hold here.
    if (in_flight_ < decision_.cwnd) MarkAppLimited();
    is_burst_over_ = true;
    is_pace_next_ = false;
    return false;
  }
  if (in_flight_ + connection_.packet_bytes > decision_.cwnd) {
    is_burst_over_ = true;  // the window ends the burst; pacing must first account for what was sent
    is_pace_next_ = false;
    return false;
  }
  if (decision_.is_paced && now < pace_time_ &&
      (is_burst_over_ || burst_ + connection_.packet_bytes > decision_.send_quantum)) {
    wake_ = pace_time_;
    is_pace_next_ = true;
    return false;
  }
  if (decision_.is_burst_whole && now >= pace_time_ && IsNextBurstHeld(now)) {
    is_burst_over_ = true;
    is_pace_next_ = false;
    return false;
  }
  Send(now, packet);
  return true;
}

/// Returns whether the next burst waits for an ACK that gives it room in the window.
[[gnu::noinline]] bool Sender::IsNextBurstHeld(Nanoseconds now) const {
  if (recovery_ != Recovery::kOpen || queued_segments_ > 0 || packets_.IsEmpty()) return false;
  const auto packets = static_cast<std::uint64_t>(decision_.send_quantum / connection_.packet_bytes);
  const std::uint64_t written = written_segments_ - segments_.end();
  return IsBurstHeld({.room = decision_.cwnd - in_flight_,
                      .cwnd = decision_.cwnd,
                      .bytes = static_cast<Bytes>(std::min(packets, written)) * connection_.packet_bytes,
                      .may_leave = pace_time_,
                      .oldest_sent = packets_.Front().time,
                      .smoothed_rtt = smoothed_rtt_},
                     now);
}

/// Asks the application what it has written until now. Returns whether it is a segment at least; if not, it is asked
/// again when it writes the next one.
[[gnu::noinline]] bool Sender::IsMoreWritten(Nanoseconds now) {
  if (!source_) return false;
  for (; written_segments_ < total_segments_ && source_->next() <= now; source_->Advance()) ++written_segments_;
  if (HasNewSegment()) return true;
  if (written_segments_ < total_segments_) wake_ = source_->next();
  return false;
}

void Sender::Send(Nanoseconds now, DataPacket& packet) {
  packet.number = packets_.end();
  packet.is_retransmission = true;
  if (queued_segments_ > 0) {
    // The smallest first (RFC 6675, section 4, NextSeg): whatever lies behind a hole is of no use to the application.
    first_queued_ = std::max(first_queued_, segments_.begin());
    while ((segments_[first_queued_] & kQueued) == 0) ++first_queued_;
    packet.segment = first_queued_;
    segments_[packet.segment] &= static_cast<std::uint8_t>(~kQueued);
    --queued_segments_;
  } else if (HasNewSegment()) {
    packet.segment = segments_.end();
    packet.is_retransmission = false;
    segments_.PushSlot() = 0;
  } else {
    // A probe without new data repeats the oldest unacknowledged segment, or the last one if there is none.
    packet.segment = std::min(segments_.begin(), segments_.end() - 1);
  }
  packet.bytes = BytesOf(packet.segment);
  packet.ecn = ecn_;

  if (in_flight_ == 0) {
    if (app_limited_ != 0 && counts_.delivered_bytes > 0 && recovery_ == Recovery::kOpen) {
      controller_->OnRestart(now);
      decision_ = controller_->decision();
    }
    first_sent_time_ = delivered_time_ = now;
  }
  in_flight_ += packet.bytes;
  Sent& sent = packets_.PushSlot();
  sent = {.time = now,
          .first_sent = first_sent_time_,
          .delivered_time = delivered_time_,
          .delivered = counts_.delivered_bytes,
          .lost = counts_.lost_bytes,
          .in_flight = in_flight_,
          .segment = packet.segment,
          .marked = static_cast<std::uint32_t>(counts_.marked_bytes),
          .bytes = static_cast<std::uint16_t>(packet.bytes),
          .state = State::kInFlight,
          .is_app_limited = app_limited_ != 0};
  ++counts_.sent_packets;
  counts_.sent_bytes += packet.bytes;
  if (packet.is_retransmission) ++counts_.retransmitted_packets;

  if (decision_.is_paced) {
    // The pause after a burst is counted from its last packet.
    const auto duration = [rate = std::max<BitsPerSecond>(decision_.pacing_rate, 1)](Bytes bytes) {
      return static_cast<Nanoseconds>(static_cast<double>(bytes) * 8e9 / static_cast<double>(rate));
    };
    if (now >= pace_time_) {
      burst_ = 0;
      is_burst_over_ = false;
      const Nanoseconds late = late_ - won_back_ + now - pace_time_;
      late_ = is_pace_next_ && late > 0 ? std::min(late, duration(kMostWonBack * connection_.packet_bytes)) : 0;
    }
    burst_ += packet.bytes;
    const Nanoseconds pause = duration(burst_);
    won_back_ = std::min(pause / 2, late_);
    pace_time_ = now + pause - won_back_;
  }
  is_pace_next_ = decision_.is_paced;
  last_sent_time_ = now;
  if (!is_loss_timer_) timer_ = now + ProbeTimeout();
}

void Sender::OnAck(Nanoseconds now, const AckPacket& ack) {
  if (ack.count == 0 || packets_.end() == 0) return;
  const Bytes prior_in_flight = in_flight_;
  const Bytes delivered_before = counts_.delivered_bytes;
  // Oldest range first, so that packets are delivered in the order of their numbers. Ranges below the window are old.
  std::uint32_t ranges = ack.count;
  while (ranges > 0 && ack.ranges[ranges - 1].high < packets_.begin()) --ranges;
  PacketNumber newest_number = 0;
  const Sent* newest = nullptr;  // valid until the next packet is sent
  for (std::uint32_t i = ranges; i-- > 0;) {
    const PacketRange& range = ack.ranges[i];
    const PacketNumber end = std::min(range.high + 1, packets_.end());
    PacketNumber next = 0;
    for (PacketNumber number = std::max(range.low, packets_.begin()); number < end; number = next) {
      Sent& packet = packets_[number];
      if (packet.state != State::kInFlight) {
        next = NextUnknown(number);
        continue;
      }
      next = number + 1;
      packet.state = State::kAcked;
      in_flight_ -= packet.bytes;
      Deliver(packet);
      newest = &packet;
      newest_number = number;
    }
  }
  CheckLostPackets(ack);
  if (ack.ranges[0].high >= largest_acked_) {  // it was not overtaken
    known_.count = 0;
    if (ack.count > 1) Remember(ack);
  }
  if (newest == nullptr) return;
  delivered_time_ = now;
  first_sent_time_ = newest->time;
  probes_in_a_row_ = probes_to_send_ = 0;
  if (app_limited_ != 0 && counts_.delivered_bytes > app_limited_) app_limited_ = 0;

  Nanoseconds rtt = 0;
  if (!has_acked_ || newest_number > largest_acked_) {
    // RFC 9002, section 5.1: only a newly acknowledged largest packet gives an RTT sample.
    has_acked_ = true;
    largest_acked_ = newest_number;
    rtt = now - newest->time;
    UpdateRtt(rtt);
    if (first_rtt_time_ == kNever) first_rtt_time_ = now;
    min_rtt_ = std::min(min_rtt_, rtt);
    rtts_.Add(rtt);
    counts_.last_rtt = rtt;
  }
  PopResolved();
  DetectLosses(now);
  UpdateRecovery(now);

  const Bytes acked = counts_.delivered_bytes - delivered_before;
  const bool is_full = prior_in_flight + connection_.packet_bytes > decision_.cwnd;
  const AckEvent event{.now = now,
                       .rtt = rtt,
                       .bytes_acked = acked,
                       .bytes_lost = std::exchange(lost_on_ack_, 0),
                       .bytes_marked = ecn_ == Ecn::kNotEct ? 0 : TakeMarks(ack, acked),
                       .prior_in_flight = prior_in_flight,
                       .in_flight = in_flight_,
                       .delivered = counts_.delivered_bytes,
                       .sent = counts_.sent_bytes,
                       .is_cwnd_limited = window_usage_.OnAck(is_full, prior_in_flight, delivered_before),
                       .sample = SampleOf(now, *newest)};
  controller_->OnAck(event);
  UpdateDecision();
  SetTimer(now);
}

void Sender::OnTimer(Nanoseconds now) {
  if (is_stopped_ || now < timer_) return;
  if (is_loss_timer_) {
    DetectLosses(now);
    UpdateRecovery(now);
    // Nothing was acknowledged: the controller knows only of a new recovery, and learns of the losses with the next
    // ACK.
    decision_ = controller_->decision();
  } else {
    ++probes_in_a_row_;
    ++counts_.timeouts;
    probes_to_send_ = 1;
  }
  SetTimer(now);
}

void Sender::UpdateDecision() {
  decision_ = controller_->decision();
  if (decision_.is_app_limited) MarkAppLimited();
}

Bytes Sender::acknowledged_in_order() const {
  const Bytes full = static_cast<Bytes>(segments_.begin()) * connection_.packet_bytes;
  return IsAllDelivered() ? full - connection_.packet_bytes + last_segment_bytes_ : full;
}

[[gnu::noinline]] void Sender::Remember(const AckPacket& ack) {
  known_.count = ack.count;
  for (std::uint32_t i = 0; i < ack.count; ++i) {
    // Without packets that were never sent.
    known_.ranges[i] = {ack.ranges[i].low, std::min(ack.ranges[i].high, packets_.end() - 1)};
  }
}

PacketNumber Sender::NextUnknown(PacketNumber number) const {
  for (std::uint32_t i = 0; i < known_.count; ++i) {
    if (known_.ranges[i].low <= number && number <= known_.ranges[i].high) return known_.ranges[i].high + 1;
  }
  return number + 1;
}

void Sender::Queue(std::uint64_t segment) {
  if ((segments_[segment] & kQueued) != 0) return;
  segments_[segment] |= kQueued;
  first_queued_ = queued_segments_++ == 0 ? segment : std::min(first_queued_, segment);
}

void Sender::Deliver(Sent& packet) {
  counts_.delivered_bytes += packet.bytes;
  Arrive(packet.segment);
}

void Sender::Arrive(std::uint64_t segment) {
  if (segment < segments_.begin()) return;
  std::uint8_t& state = segments_[segment];
  if ((state & kArrived) != 0) return;
  if ((state & kMissing) != 0) --unrepaired_segments_;
  if ((state & kQueued) != 0) --queued_segments_;
  state = kArrived;
  while (!segments_.IsEmpty() && (segments_.Front() & kArrived) != 0) segments_.Pop();
}

/// Returns what the acknowledgement newly reports as marked. An older one, which was overtaken, reports nothing new.
/// The marks of packets that were taken for lost before they arrived wait for the next acknowledgement: no more is
/// marked than acknowledged.
Bytes Sender::TakeMarks(const AckPacket& ack, Bytes acked) {
  const Bytes marked = std::clamp<Bytes>(ack.marked - counts_.marked_bytes, 0, acked);
  counts_.marked_bytes += marked;
  return marked;
}

void Sender::CheckLostPackets(const AckPacket& ack) {
  if (recovery_ == Recovery::kOpen || lost_packets_.IsEmpty()) return;
  std::uint32_t before = 0;
  for (std::uint32_t i = 0; i < ack.count; ++i) {
    const PacketRange& range = ack.ranges[i];
    while (before < known_.count && known_.ranges[before].low > range.low) ++before;
    // Usually the newest range has grown, by what cannot be lost yet, and the others are known.
    if (before < known_.count && known_.ranges[before].low == range.low &&
        (before == 0 || known_.ranges[before].high == range.high)) {
      continue;
    }
    for (std::size_t at = FirstLostFrom(range.low); at < lost_packets_.size(); ++at) {
      Lost& lost = lost_packets_[at];
      if (lost.number > range.high) break;
      if (std::exchange(lost.has_arrived, true)) continue;
      Arrive(lost.segment);
      reordering_.OnLateArrival(largest_acked_, packets_.end());
    }
  }
  while (!lost_packets_.IsEmpty() && lost_packets_.Front().has_arrived) lost_packets_.Pop();
  if (!lost_packets_.IsEmpty() || is_lost_for_good_) return;
  if (controller_->OnSpuriousRecovery()) recovery_ = Recovery::kOpen;
  decision_ = controller_->decision();
}

void Sender::RememberLost(PacketNumber number, std::uint64_t segment) {
  if (lost_packets_.size() == kMostLost) {
    is_lost_for_good_ = true;
    lost_packets_.Pop();
  }
  lost_packets_.Push({number, segment, false});
}

std::size_t Sender::FirstLostFrom(PacketNumber number) {
  std::size_t begin = 0;
  std::size_t count = lost_packets_.size();
  while (count > 0) {
    const std::size_t half = count / 2;
    if (lost_packets_[begin + half].number < number) {
      begin += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return begin;
}

void Sender::DetectLosses(Nanoseconds now) {
  if (recovery_ == Recovery::kOpen) {
    lost_packets_.Clear();
    is_lost_for_good_ = false;
  }
  loss_time_ = kNever;
  lost_span_ = 0;
  if (!has_acked_ || packets_.begin() > largest_acked_) return;
  // RFC 9002, section 6.1: lost if a packet sent three later was acknowledged, or after 9/8 of an RTT. On a path that
  // is known to reorder, time alone decides.
  const Nanoseconds rtt = std::max(smoothed_rtt_, latest_rtt_);
  const bool is_reordering = reordering_.IsOpen();
  const Nanoseconds wait = is_reordering ? reordering_.Length(min_rtt_, smoothed_rtt_) : rtt / 8;
  const Nanoseconds delay = std::max(rtt + wait, kGranularity);
  // Persistent congestion (section 7.6.2): a run of losses without an acknowledged packet in between.
  Nanoseconds run_begin = kNever;
  for (PacketNumber number = packets_.begin(); number < largest_acked_; ++number) {
    Sent& packet = packets_[number];
    if (packet.state == State::kAcked) run_begin = kNever;
    if (packet.state != State::kInFlight) continue;
    if ((is_reordering || number + kPacketThreshold > largest_acked_) && packet.time + delay > now) {
      loss_time_ = packet.time + delay;
      break;  // all later ones are not lost either
    }
    MarkLost(packet);
    RememberLost(number, packet.segment);
    if (packet.time <= first_rtt_time_) continue;
    if (run_begin == kNever) run_begin = packet.time;
    lost_span_ = std::max(lost_span_, packet.time - run_begin);
  }
  PopResolved();
}

void Sender::MarkLost(Sent& packet) {
  packet.state = State::kLost;
  in_flight_ -= packet.bytes;
  counts_.lost_bytes += packet.bytes;
  lost_on_ack_ += packet.bytes;
  if (packet.segment < segments_.begin()) return;
  std::uint8_t& state = segments_[packet.segment];
  if ((state & kArrived) != 0) return;
  if ((state & kMissing) == 0) ++unrepaired_segments_;
  // If two copies of a segment are lost, it is sent again once.
  state |= kMissing;
  Queue(packet.segment);
}

void Sender::UpdateRecovery(Nanoseconds now) {
  if (recovery_ == Recovery::kOpen && unrepaired_segments_ == 0 && lost_span_ == 0) return;
  if (recovery_ != Recovery::kOpen && segments_.begin() >= recovery_end_) {
    recovery_ = Recovery::kOpen;
    reordering_.OnRecoveryEnd();
    // What is still missing was lost after what has been repaired, and belongs to the next recovery.
    while (!lost_packets_.IsEmpty() && lost_packets_.Front().segment < segments_.begin()) lost_packets_.Pop();
    controller_->OnRecovery(recovery_, now, in_flight_);
  }
  // Everything sent for so long was lost: section 7.6.1.
  if (lost_span_ > kPersistentCongestionThreshold * probe_timeout_) {
    EnterRecovery(Recovery::kLoss, now);
  } else if (recovery_ == Recovery::kOpen && unrepaired_segments_ > 0) {
    EnterRecovery(Recovery::kRecovery, now);
    is_fast_retransmit_due_ = true;
  }
}

void Sender::EnterRecovery(Recovery state, Nanoseconds now) {
  recovery_ = state;
  recovery_end_ = segments_.end();
  controller_->OnRecovery(state, now, in_flight_);
}

void Sender::UpdateRtt(Nanoseconds rtt) {
  // RFC 6298, section 2, and RFC 9002, section 5.3.
  latest_rtt_ = rtt;
  if (smoothed_rtt_ == 0) {
    smoothed_rtt_ = rtt;
    rtt_variance_ = rtt / 2;
  } else {
    rtt_variance_ += (std::abs(smoothed_rtt_ - rtt) - rtt_variance_) / 4;
    smoothed_rtt_ += (rtt - smoothed_rtt_) / 8;
  }
  // RFC 9002, section 6.2.1.
  probe_timeout_ = smoothed_rtt_ == 0
                       ? 999 * kMillisecond
                       : smoothed_rtt_ + std::max(4 * rtt_variance_, kGranularity) + Receiver::kMaxAckDelay;
}

RateSample Sender::SampleOf(Nanoseconds now, const Sent& newest) const {
  const Nanoseconds send_elapsed = newest.time - newest.first_sent;
  const Nanoseconds ack_elapsed = now - newest.delivered_time;
  const Nanoseconds interval = std::max(send_elapsed, ack_elapsed);
  const Bytes delivered = counts_.delivered_bytes - newest.delivered;
  return {.is_valid = delivered > 0 && interval >= min_rtt_,
          .delivery_rate = RateOf(delivered, interval),
          .interval = interval,
          .delivered = delivered,
          .prior_delivered = newest.delivered,
          .is_app_limited = newest.is_app_limited,
          .tx_in_flight = newest.in_flight,
          .lost_since_send = counts_.lost_bytes - newest.lost,
          .marked_since_send = static_cast<std::uint32_t>(counts_.marked_bytes) - newest.marked};
}

void Sender::MarkAppLimited() {
  app_limited_ = std::max<Bytes>(counts_.delivered_bytes + in_flight_, 1);
}

void Sender::SetTimer(Nanoseconds now) {
  assert(in_flight_ >= 0 && counts_.sent_bytes == counts_.delivered_bytes + counts_.lost_bytes + in_flight_);
  if (is_stopped_) return;
  is_loss_timer_ = loss_time_ != kNever;
  // A probe may be overdue: a loss by time can come later than a probe timeout, and a backoff may just have ended.
  timer_ = is_loss_timer_ ? loss_time_ : in_flight_ == 0 ? kNever : std::max(now, last_sent_time_ + ProbeTimeout());
}

std::int32_t Sender::BytesOf(std::uint64_t segment) const {
  return segment + 1 == total_segments_ ? last_segment_bytes_ : static_cast<std::int32_t>(connection_.packet_bytes);
}

}  // namespace bbrgym
