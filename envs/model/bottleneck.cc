#include "envs/model/bottleneck.h"

#include <algorithm>

namespace bbrgym {

namespace {

// One packet is being sent and one is in the device, as in ns-3, whose device takes the next packet from the queue
// early.
constexpr std::size_t kBeyondQueue = 2;

}  // namespace

void Bottleneck::Reset(const Scenario& scenario, std::uint64_t seed) {
  queue_.Clear();
  const auto from_ms = [](double ms) { return static_cast<Nanoseconds>(ms * 1e6); };
  // Droptail that marks by delay is CoDel that never drops.
  is_codel_ = scenario.IsCodel() || scenario.ce_threshold_ms;
  codel_.Reset(scenario.IsCodel() ? from_ms(scenario.codel_target_ms) : kNever, from_ms(scenario.codel_interval_ms),
               scenario.packet_bytes + kHeaderBytes,
               scenario.ce_threshold_ms ? from_ms(*scenario.ce_threshold_ms) : kNever);
  capacity_ = static_cast<std::size_t>(scenario.QueuePackets()) + kBeyondQueue;
  loss_ = LossModel(scenario.loss, scenario.loss_burst_packets, seed);
  departure_ = kNever;
  waiting_bytes_ = 0;
  last_change_ = 0;
  rate_mbps_ = scenario.FirstRateMbps();
  ns_per_byte_ = 8e3 / rate_mbps_;
  StartStep(0);
}

void Bottleneck::SetRate(Nanoseconds now, double rate_mbps) {
  Integrate(now);
  rate_mbps_ = rate_mbps;
  ns_per_byte_ = 8e3 / rate_mbps;
  most_delay_ns_ = std::max(most_delay_ns_, static_cast<double>(waiting_bytes_) * ns_per_byte_);
}

void Bottleneck::Enqueue(Nanoseconds now, const DataPacket& packet, std::uint32_t flow) {
  if (queue_.size() + codel_.size() >= capacity_) {
    ++drops_;
    return;
  }
  Integrate(now);
  if (is_codel_) {
    codel_.Push(now, {.packet = packet, .flow = flow}, packet.bytes + kHeaderBytes);
    // A packet that finds the queue empty goes straight to the device: it has not waited, so CoDel does not drop it.
    if (queue_.size() < kBeyondQueue) codel_.Pop(now, queue_.PushSlot());
  } else {
    Item& item = queue_.PushSlot();
    item.packet = packet;
    item.flow = flow;
  }
  if (queue_.size() == 1) {
    StartSending(now);
    return;
  }
  waiting_bytes_ += packet.bytes + kHeaderBytes;
  most_packets_ = std::max(most_packets_, WaitingPackets());
  most_delay_ns_ = std::max(most_delay_ns_, static_cast<double>(waiting_bytes_) * ns_per_byte_);
}

bool Bottleneck::Depart(Item& item) {
  const Nanoseconds now = departure_;
  Integrate(now);
  item = queue_.Front();
  queue_.Pop();
  if (queue_.IsEmpty()) {
    departure_ = kNever;
  } else {
    waiting_bytes_ -= queue_.Front().packet.bytes + kHeaderBytes;
    StartSending(now);
  }
  if (is_codel_) FillDevice(now);
  const bool has_data = item.packet.bytes > 0;  // packets without data are never lost
  if (loss_.CanLose() && has_data && loss_.IsNextLost()) {
    ++random_losses_;
    return false;
  }
  return true;
}

void Bottleneck::FillDevice(Nanoseconds now) {
  const std::uint64_t drops_before = codel_.drops();
  QueuedPacket next;
  if (codel_.Pop(now, next)) queue_.Push(next);
  drops_ += codel_.drops() - drops_before;
  const bool has_device = queue_.size() == kBeyondQueue;
  waiting_bytes_ = codel_.bytes() + (has_device ? queue_[1].packet.bytes + kHeaderBytes : 0);
}

void Bottleneck::StartSending(Nanoseconds now) {
  departure_ = now + TimeToSend(queue_.Front().packet.bytes + kHeaderBytes);
}

void Bottleneck::Integrate(Nanoseconds now) {
  const Nanoseconds elapsed = now - last_change_;
  if (elapsed <= 0) return;
  last_change_ = now;
  if (queue_.IsEmpty()) return;
  const auto ns = static_cast<double>(elapsed);
  sending_ns_ += elapsed;
  packet_ns_ += ns * static_cast<double>(WaitingPackets());
  delay_ns_ns_ += ns * static_cast<double>(waiting_bytes_) * ns_per_byte_;
}

void Bottleneck::StartStep(Nanoseconds now) {
  Integrate(now);
  step_start_ = last_change_ = now;
  packet_ns_ = delay_ns_ns_ = 0.0;
  sending_ns_ = 0;
  drops_ = random_losses_ = 0;
  marks_before_ = codel_.marks();
  most_packets_ = queue_.IsEmpty() ? 0 : WaitingPackets();
  most_delay_ns_ = static_cast<double>(waiting_bytes_) * ns_per_byte_;
}

LinkRow Bottleneck::GetRow(Nanoseconds now) {
  Integrate(now);
  const auto ns = static_cast<double>(now - step_start_);
  const auto per = [ns](double sum) { return ns > 0.0 ? sum / ns : 0.0; };
  return {.rate_mbps = rate_mbps_,
          .utilisation = per(static_cast<double>(sending_ns_)),
          .queue_mean_packets = per(packet_ns_),
          .queue_max_packets = static_cast<double>(most_packets_),
          .queue_mean_ms = per(delay_ns_ns_) / 1e6,
          .queue_max_ms = most_delay_ns_ / 1e6,
          .drops = static_cast<double>(drops_),
          .marks = static_cast<double>(codel_.marks() - marks_before_),
          .random_losses = static_cast<double>(random_losses_)};
}

}  // namespace bbrgym
