#include "envs/model/bottleneck.h"

#include <algorithm>

namespace bbrgym {

namespace {

// One packet is being sent and one is in the device, as in ns-3, whose device takes the next packet from the queue
// early.
constexpr std::size_t kBeyondQueue = 2;

}  // namespace

void Bottleneck::Reset(const Scenario& scenario, std::uint64_t seed, std::vector<Item>* dropped) {
  queue_.Clear();
  discipline_ = MakeQueueDiscipline(scenario, seed, tally_);
  tally_.dropped = dropped;
  capacity_ = static_cast<std::size_t>(scenario.QueuePackets()) + kBeyondQueue;
  policer_ = Policer(scenario);
  loss_ = LossModel(scenario, seed);
  departure_ = kNever;
  managed_packets_ = 0;
  waiting_bytes_ = 0;
  last_change_ = 0;
  rate_mbps_ = scenario.FirstRateMbps();
  sending_rate_mbps_ = rate_mbps_;
  ns_per_byte_ = 8e3 / rate_mbps_;
  StartStep(0);
}

void Bottleneck::SetRate(Nanoseconds now, double rate_mbps) {
  Integrate(now);
  earlier_rates_ += rate_mbps_ * static_cast<double>(now - rate_since_);
  rate_since_ = now;
  rate_mbps_ = rate_mbps;
  ns_per_byte_ = 8e3 / rate_mbps;
}

void Bottleneck::Enqueue(Nanoseconds now, const DataPacket& packet, std::uint32_t flow) {
  if (policer_.IsActive() && !policer_.Admits(now, packet.bytes + kHeaderBytes)) {
    tally_.Drop({.packet = packet, .flow = flow});
    return;
  }
  if (discipline_) {
    EnqueueManaged(now, {.packet = packet, .flow = flow});
    return;
  }
  if (queue_.size() >= capacity_) {
    tally_.Drop({.packet = packet, .flow = flow});
    return;
  }
  Integrate(now);
  Item& item = queue_.PushSlot();
  item.packet = packet;
  item.flow = flow;
  if (queue_.size() == 1) {
    StartSending(now);
    return;
  }
  waiting_bytes_ += item.bytes();
}

// Not inlined, like `FillDevice`: most scenarios do without.
[[gnu::noinline]] void Bottleneck::EnqueueManaged(Nanoseconds now, const Item& item) {
  if (discipline_->IsFull()) {
    tally_.Drop(item);
    return;
  }
  Integrate(now);
  const bool was_idle = queue_.IsEmpty();
  discipline_->Push(now, item);
  FillDevice(now);
  if (was_idle && !queue_.IsEmpty()) StartSending(now);
}

/// Takes the next packet from the discipline if the device has place for it.
[[gnu::noinline]] void Bottleneck::FillDevice(Nanoseconds now) {
  Item next;
  if (queue_.size() < kBeyondQueue && discipline_->Pop(now, next)) queue_.Push(next);
  const bool has_device = queue_.size() == kBeyondQueue;
  managed_packets_ = discipline_->size();
  waiting_bytes_ = discipline_->bytes() + (has_device ? queue_[1].bytes() : 0);
}

bool Bottleneck::Depart(Item& item) {
  const Nanoseconds now = departure_;
  Integrate(now);
  item = queue_.Front();
  queue_.Pop();
  if (queue_.IsEmpty()) {
    departure_ = kNever;
  } else {
    waiting_bytes_ -= queue_.Front().bytes();
    StartSending(now);
  }
  if (discipline_) FillDevice(now);
  const bool has_data = item.packet.bytes > 0;  // packets without data are never lost
  if (loss_.CanLose() && has_data && loss_.IsNextLost(now)) {
    ++random_losses_;
    return false;
  }
  return true;
}

void Bottleneck::StartSending(Nanoseconds now) {
  if (sending_rate_mbps_ != rate_mbps_) [[unlikely]] {
    earlier_sent_ += sending_rate_mbps_ * static_cast<double>(sending_ns_);
    sending_ns_ = 0;
    sending_rate_mbps_ = rate_mbps_;
  }
  departure_ = now + TimeToSend(queue_.Front().bytes());
}

void Bottleneck::Integrate(Nanoseconds now) {
  const Nanoseconds elapsed = now - last_change_;
  if (elapsed <= 0) return;
  last_change_ = now;
  if (queue_.IsEmpty()) return;
  const auto ns = static_cast<double>(elapsed);
  sending_ns_ += elapsed;
  packet_ns_ += ns * static_cast<double>(WaitingPackets());
  const double delay_ns = static_cast<double>(waiting_bytes_) * ns_per_byte_;
  delay_ns_ns_ += ns * delay_ns;
  // Only lengths that last count, as in ns-3's link monitor.
  most_packets_ = std::max(most_packets_, WaitingPackets());
  most_delay_ns_ = std::max(most_delay_ns_, delay_ns);
}

void Bottleneck::StartStep(Nanoseconds now) {
  Integrate(now);
  step_start_ = last_change_ = rate_since_ = now;
  earlier_rates_ = 0.0;
  packet_ns_ = delay_ns_ns_ = most_delay_ns_ = earlier_sent_ = 0.0;
  sending_ns_ = most_packets_ = 0;
  random_losses_ = 0;
  tally_ = {.dropped = tally_.dropped};
}

double Bottleneck::MeanRateMbps(Nanoseconds now) const {
  if (rate_since_ == step_start_) return rate_mbps_;
  const double sum = earlier_rates_ + rate_mbps_ * static_cast<double>(now - rate_since_);
  return sum / static_cast<double>(now - step_start_);
}

double Bottleneck::Utilisation(Nanoseconds now) const {
  const auto ns = static_cast<double>(now - step_start_);
  if (ns <= 0.0) return 0.0;
  const auto sending_ns = static_cast<double>(sending_ns_);
  const bool is_one_rate = rate_since_ == step_start_ && earlier_sent_ == 0.0 && sending_rate_mbps_ == rate_mbps_;
  if (is_one_rate) return sending_ns / ns;
  return std::min((earlier_sent_ + sending_rate_mbps_ * sending_ns) / (MeanRateMbps(now) * ns), 1.0);
}

LinkRow Bottleneck::GetRow(Nanoseconds now) {
  Integrate(now);
  const auto ns = static_cast<double>(now - step_start_);
  const auto per = [ns](double sum) { return ns > 0.0 ? sum / ns : 0.0; };
  return {.rate_mbps = MeanRateMbps(now),
          .utilisation = Utilisation(now),
          .queue_mean_packets = per(packet_ns_),
          .queue_max_packets = static_cast<double>(most_packets_),
          .queue_mean_ms = per(delay_ns_ns_) / 1e6,
          .queue_max_ms = most_delay_ns_ / 1e6,
          .drops = static_cast<double>(tally_.drops),
          .marks = static_cast<double>(tally_.marks),
          .random_losses = static_cast<double>(random_losses_),
          .further = EmptyRow<FurtherLinkRow>()};  // other links are not known here
}

}  // namespace bbrgym
