#include "envs/native/network.h"

#include <algorithm>
#include <cassert>
#include <stdexcept>
#include <string>
#include <utility>

#include "baselines/cc/controller_file.h"
#include "baselines/cc/registry.h"
#include "envs/model/episode_seeds.h"
#include "envs/transport/connection.h"

namespace bbrgym {

namespace {

// In a link the answer to a hello has this number, acknowledgements have others.
constexpr PacketNumber kAnswer = 0;

}  // namespace

void Network::Reset(std::shared_ptr<const Scenario> scenario, std::uint64_t seed) {
  if (scenario != scenario_) {
    scenario->Check();
    for (const Flow& flow : scenario->flows) CheckFlowController(flow);
    scenario_ = std::move(scenario);
  }
  now_ = step_start_ = 0;
  end_ = FromSeconds(scenario_->duration_s);
  late_.Clear();
  SetNextRate(0);
  const EpisodeSeeds seeds(seed, scenario_->flows.size());
  link_.Reset(*scenario_, seeds.link);
  reordering_ = Reordering(*scenario_, seeds.link);
  further_.reset();
  if (scenario_->HasFurtherLinks()) further_ = std::make_unique<Further>(*scenario_);

  flows_.clear();
  flows_.resize(scenario_->flows.size());
  next_.Reset(flows_.size(), kNever);
  open_flows_ = flows_.size();
  last_completion_ = 0;
  const double link_delay_ms = scenario_->LinkDelayMs();
  for (std::size_t i = 0; i < flows_.size(); ++i) {
    const Flow& given = scenario_->flows[i];
    FlowState& flow = flows_[i];
    flow.route = RouteOf(given, link_, further_ ? &further_->links : nullptr);
    flow.seed = seeds.flows[i];
    flow.start = FromSeconds(given.start_s);
    flow.delivery = Delivery(given.size_bytes, flow.start);
    flow.path = ReturnPath(given, 0.0, flow.seed, FromMilliseconds(link_delay_ms));
    flow.shift = FromMilliseconds(given.ForwardMs() - link_delay_ms);
    flow.arrival = FromMilliseconds(link_delay_ms);
    if (flow.route.acks == &link_) {  // the clock is that of the reverse link
      flow.path = ReturnPath(given, 2.0 * link_delay_ms, flow.seed);
      flow.arrival = 0;
      flow.shift -= FromMilliseconds(link_delay_ms);
    }
    if (given.stop_s) {
      flow.end = FromSeconds(*given.stop_s);
      flow.silence = flow.end + flow.shift;
    }
    UpdateNext(i, flow);
  }
  Step(0);
}

void Network::SetGains(std::int64_t index, double cwnd_gain, double pacing_gain) {
  scenario_->CheckSteerable(index);
  FlowState& flow = flows_[static_cast<std::size_t>(index)];
  flow.gains = {.cwnd = cwnd_gain, .pacing = pacing_gain};
  // The sender reads the controller's decision on the next ACK, as always.
  if (flow.sender) flow.sender->controller().Steer(cwnd_gain, pacing_gain);
}

void Network::TakeChanges() {
  const auto& rates = scenario_->rate_schedule;
  const auto lies_ahead = [this](const auto& change) { return FromSeconds(change.first) > now_; };
  SetNextRate(static_cast<std::size_t>(std::find_if(rates.begin(), rates.end(), lies_ahead) - rates.begin()));
  link_.SetLoss(scenario_->loss);
  for (std::size_t i = 0; i < flows_.size(); ++i) flows_[i].path.SetJitter(scenario_->flows[i].jitter_ms);
}

std::string Network::Fault() const {
  for (std::size_t i = 0; i < flows_.size(); ++i) {
    const Controller* controller = flows_[i].sender ? &flows_[i].sender->controller() : nullptr;
    if (std::string fault = FaultOf(controller, i); !fault.empty()) return fault;
  }
  return {};
}

void Network::Step(Nanoseconds duration) {
  if (flows_.empty()) throw std::logic_error("step before the first reset");
  step_start_ = now_;
  link_.StartStep(now_);
  if (further_) further_->links.StartStep(now_);
  for (FlowState& flow : flows_) {
    flow.before = CountsOf(flow.sender.get(), flow.receiver);
    flow.delivery.StartStep();
    if (flow.sender) flow.sender->StartStep();
  }
  const Nanoseconds end = duration > end_ - now_ ? end_ : now_ + std::max<Nanoseconds>(duration, 0);
  if (end > now_) RunUntil(end);
}

// Every packet goes through this function. Flat: inlining the link, the sender and the receiver into it saves time.
[[gnu::flatten]] void Network::RunUntil(Nanoseconds end) {
  while (true) {
    end = std::min(end, end_);  // the last completion ends the scenario
    const Nanoseconds flow_time = next_.time();
    const Nanoseconds departure = link_.departure();
    const Nanoseconds time = std::min(flow_time, departure);
    if (further_ && further_->NextEvent() <= std::min({time, end, next_rare_})) {
      RunFurtherLinks();
      continue;
    }
    if (next_rare_ <= std::min(time, end)) {
      RunRare();
      continue;
    }
    if (time > end) break;
    assert(time >= now_);
    now_ = time;
    if (departure <= flow_time) {
      Depart();
    } else {
      RunFlow(next_.index(), flow_time);
    }
  }
  now_ = end;
}

void Network::SetNextRate(std::size_t index) {
  const auto& rates = scenario_->rate_schedule;
  next_rate_ = index;
  next_change_ = index < rates.size() ? FromSeconds(rates[index].first) : kNever;
  UpdateRare();
}

void Network::UpdateRare() {
  next_rare_ = std::min(next_change_, late_.IsEmpty() ? kNever : late_.Front().arrival);
}

/// A change of the rate, or a late packet. These come first among simultaneous events.
[[gnu::noinline]] void Network::RunRare() {
  if (next_change_ == next_rare_) {
    link_.SetRate(next_change_, scenario_->rate_schedule[next_rate_].second);
    SetNextRate(next_rate_ + 1);
    return;
  }
  now_ = next_rare_;
  const Bottleneck::Item item = late_.Front().item;
  late_.Pop();
  UpdateRare();
  Arrive(item);
}

[[gnu::noinline]] void Network::HoldBack(const Bottleneck::Item& item, Nanoseconds delay) {
  LatePacket& late = late_.PushSlot();
  late.arrival = now_ + delay;
  late.item = item;
  UpdateRare();
}

void Network::Depart() {
  Bottleneck::Item item;
  const bool has_arrived = link_.Depart(item);
  const Nanoseconds delay = reordering_.NextDelay(item.packet.bytes);
  if (!has_arrived) return;
  if (delay > 0) {
    HoldBack(item, delay);
  } else {
    Arrive(item);
  }
}

/// What has left the first link, late or not.
void Network::Arrive(const Bottleneck::Item& item) {
  if (further_) [[unlikely]] {
    Forward(item);
  } else {
    Receive(item);
  }
}

/// What left the first link of several.
[[gnu::noinline]] void Network::Forward(const Bottleneck::Item& item) {
  FlowState& flow = flows_[item.flow];
  if (flow.route.acks == &link_) {
    ReturnAck(item);
  } else if (flow.route.second) {
    flow.route.second->Enqueue(now_, item.packet, item.flow);
  } else {
    Receive(item);
  }
}

[[gnu::noinline]] void Network::RunFurtherLinks() {
  Further& further = *further_;
  now_ = further.NextEvent();
  Bottleneck::Item item;
  if (!further.arrivals.IsEmpty() && further.arrivals.Front().time <= now_) {
    item = further.arrivals.Front().item;
    further.arrivals.Pop();
    Receive(item);
  } else if (further.links.second.departure() <= now_) {
    further.links.second.Depart(item);
    Receive(item);
  } else {
    further.links.reverse.Depart(item);
    if (flows_[item.flow].route.entry == &further.links.reverse) {
      further.arrivals.Push({.time = now_ + further.reverse_delay, .item = item});
    } else {
      ReturnAck(item);
    }
  }
}

/// A packet is at its receiver.
void Network::Receive(const Bottleneck::Item& item) {
  FlowState& flow = flows_[item.flow];
  if (item.packet.bytes == 0) {
    if (flow.route.acks) {
      flow.route.acks->Enqueue(now_, {.number = kAnswer, .segment = item.packet.segment}, item.flow);
    } else {
      AnswerHello(item.flow, item.packet.segment);
    }
    return;
  }
  const Nanoseconds next = next_.TimeOf(item.flow);
  const bool is_next_ack = flow.receiver.AckDue() <= next;
  if (flow.receiver.OnPacket(now_, item.packet)) SendAck(flow, now_);
  if (flow.receiver.counts().received >= flow.delivery.due() && Deliver(flow, now_)) {
    UpdateNext(item.flow, flow);
  } else if (is_next_ack || flow.NextAck() < next) {
    UpdateNext(item.flow, flow);
  }
}

/// The answer to the hello sent at `sent` has nothing but the delay before it.
void Network::AnswerHello(std::size_t index, std::uint64_t sent) {
  FlowState& flow = flows_[index];
  const Nanoseconds answer = flow.path.Arrival(now_);
  if (answer >= flow.answer) return;
  flow.answer = answer;
  flow.answered = static_cast<Nanoseconds>(sent);
  UpdateNext(index, flow);
}

/// In a link an acknowledgement is a packet without data, whose number is found again when it leaves.
[[gnu::noinline]] void Network::QueueAck(FlowState& flow, Nanoseconds now) {
  const auto index = static_cast<std::size_t>(&flow - flows_.data());
  Further::QueuedAck& ack = further_->acks[index].PushSlot();
  ack.number = ++further_->last_ack;
  flow.receiver.WriteAck(ack.packet);
  flow.route.acks->Enqueue(now, {.number = ack.number}, static_cast<std::uint32_t>(index));
}

/// An acknowledgement, or the answer to a hello, has left its link.
void Network::ReturnAck(const Bottleneck::Item& item) {
  if (item.packet.number == kAnswer) {
    AnswerHello(item.flow, item.packet.segment);
    return;
  }
  FlowState& flow = flows_[item.flow];
  Ring<Further::QueuedAck>& queued = further_->acks[item.flow];
  while (queued.Front().number != item.packet.number) queued.Pop();  // these were dropped
  const Nanoseconds arrival = flow.path.Arrival(now_);
  if (arrival != kNever) {
    Ack& ack = flow.acks.PushSlot();
    ack.time = arrival;
    ack.packet = queued.Front().packet;
  }
  queued.Pop();
  if (flow.NextAck() < next_.TimeOf(item.flow)) UpdateNext(item.flow, flow);
}

void Network::SendAck(FlowState& flow, Nanoseconds now) {
  if (flow.route.acks) [[unlikely]] {
    QueueAck(flow, now);
    return;
  }
  const Nanoseconds arrival = flow.path.Arrival(now);
  if (arrival == kNever) {
    AckPacket lost;
    flow.receiver.WriteAck(lost);
    return;
  }
  Ack& ack = flow.acks.PushSlot();
  ack.time = arrival;
  flow.receiver.WriteAck(ack.packet);
}

/// Returns whether the flow is complete now.
[[gnu::noinline]] bool Network::Deliver(FlowState& flow, Nanoseconds now) {
  const Nanoseconds arrival = now + flow.arrival;
  flow.delivery.OnReceived(arrival, flow.receiver.counts().received);
  if (!flow.delivery.IsComplete()) return false;
  End(flow, arrival);
  last_completion_ = std::max(last_completion_, arrival);
  if (--open_flows_ == 0) end_ = std::min(end_, last_completion_);
  return true;
}

void Network::RunFlow(std::size_t index, Nanoseconds now) {
  FlowState& flow = flows_[index];
  if (!flow.acks.IsEmpty() && flow.acks.Front().time <= now) {
    flow.sender->OnAck(now, flow.acks.Front().packet);
    flow.acks.Pop();
    Pump(index, flow, now);
  } else if (flow.receiver.AckDue() <= now) {
    SendAck(flow, now);
  } else if (flow.silence <= now && flow.phase != Phase::kEnded) {
    End(flow, now);
  } else if (flow.phase == Phase::kOpen) {
    flow.sender->OnTimer(now);
    Pump(index, flow, now);
  } else if (flow.phase == Phase::kBefore) {
    flow.phase = Phase::kConnecting;
    flow.hello = now + flow.shift;
  } else if (flow.phase == Phase::kConnecting) {
    if (flow.answer <= now) {
      Connect(index, flow);
      Pump(index, flow, now);
    } else {
      SendHello(index, flow, now);
    }
  }
  UpdateNext(index, flow);
}

void Network::Pump(std::size_t index, FlowState& flow, Nanoseconds now) {
  DataPacket packet;
  Bottleneck& entry = *flow.route.entry;
  while (flow.sender->NextPacket(now, packet)) entry.Enqueue(now, packet, static_cast<std::uint32_t>(index));
}

void Network::UpdateNext(std::size_t index, const FlowState& flow) {
  Nanoseconds next = flow.NextAck();
  switch (flow.phase) {
    case Phase::kBefore:
      next = std::min(flow.start, flow.silence);
      break;
    case Phase::kConnecting:
      next = std::min({flow.hello, flow.answer, flow.silence});
      break;
    case Phase::kOpen:
      next = std::min(std::min(next, flow.sender->NextTimer()), flow.silence);
      break;
    case Phase::kEnded:
      break;
  }
  next_.Set(index, next);
}

/// A hello is a packet without data, whose segment is the time.
[[gnu::noinline]] void Network::SendHello(std::size_t index, FlowState& flow, Nanoseconds now) {
  flow.route.entry->Enqueue(now, {.segment = static_cast<std::uint64_t>(now)}, static_cast<std::uint32_t>(index));
  flow.hello = now + flow.hello_timeout;
  flow.hello_timeout = NextHelloTimeout(flow.hello_timeout);
}

[[gnu::noinline]] void Network::Connect(std::size_t index, FlowState& flow) {
  const Flow& given = scenario_->flows[index];
  const Nanoseconds rtt = flow.answer - flow.answered;
  const Connection connection = MakeConnection(given, scenario_->packet_bytes, rtt, flow.seed);
  flow.sender = MakeSender(given, connection, flow.gains, flow.answer);
  if (const auto source = MakeAppSource(given, connection, flow.answer - flow.shift)) {
    flow.delivery.Expect(*source, connection.packet_bytes);
  }
  flow.phase = Phase::kOpen;
}

void Network::End(FlowState& flow, Nanoseconds now) {
  if (flow.phase == Phase::kEnded) return;
  flow.phase = Phase::kEnded;
  flow.end = std::min(flow.end, now);
  if (flow.sender) flow.sender->Stop();
}

LinkRow Network::GetLinkRow() {
  LinkRow row = link_.GetRow(now_);
  if (further_) further_->links.AddTo(row, now_);
  return row;
}

FlowRow Network::GetFlowRow(std::size_t index) const {
  const FlowState& flow = flows_[index];
  const double active_share =
      flow.phase == Phase::kBefore ? 0.0 : ActiveShare({flow.start, flow.end}, {step_start_, now_});
  return MakeFlowRow({.seconds = static_cast<double>(now_ - step_start_) / 1e9,
                      .active_share = active_share,
                      .packet_bytes = scenario_->packet_bytes,
                      .is_open = flow.phase == Phase::kOpen,
                      .before = flow.before},
                     ReadingOf(flow.sender.get(), flow.receiver, flow.delivery));
}

}  // namespace bbrgym
