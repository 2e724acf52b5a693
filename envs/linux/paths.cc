#include "envs/linux/paths.h"

#include <algorithm>

namespace bbrgym {

Paths::Paths(const Scenario& scenario, const EpisodeSeeds& seeds)
    : rates_(scenario.rate_schedule),
      link_delay_(FromMilliseconds(scenario.LinkDelayMs())),
      reordering_(scenario, seeds.link),
      flows_(scenario.flows.size()) {
  link_.Reset(scenario, seeds.link, &lost_);
  if (scenario.HasFurtherLinks()) further_ = std::make_unique<Further>(scenario, &lost_);
  SetNextRate(0);
  entries_.Reset(flows_.size(), kNever);
  returns_.Reset(flows_.size(), kNever);
  for (std::size_t i = 0; i < flows_.size(); ++i) {
    const Flow& given = scenario.flows[i];
    FlowState& flow = flows_[i];
    flow.route = RouteOf(given, link_, further_ ? &further_->links : nullptr);
    const bool has_delay_behind = !further_ || flow.route.entry != &further_->links.second;
    flow.ahead = FromMilliseconds(given.ForwardMs()) - (has_delay_behind ? link_delay_ : 0);
    flow.path = ReturnPath(given, given.ForwardMs(), seeds.flows[i]);
  }
}

void Paths::Send(Nanoseconds now, const Packet& packet) {
  FlowState& flow = flows_[packet.flow];
  flow.entering.Push(now + flow.ahead, packet);
  entries_.Set(packet.flow, flow.entering.due());
}

void Paths::Return(Nanoseconds now, const Packet& packet) {
  if (flows_[packet.flow].route.acks) {
    further_->acks.Push(now, packet);
  } else {
    ReturnFrom(now, packet);
  }
}

void Paths::Advance(Nanoseconds now) {
  for (Nanoseconds next = NextEvent(); next <= now; next = NextEvent()) RunNext(next);
}

Nanoseconds Paths::NextEvent() const {
  const Nanoseconds next =
      std::min({next_change_, link_.departure(), behind_.due(), late_.due(), entries_.time(), returns_.time()});
  return further_ ? std::min(next, further_->NextEvent()) : next;
}

/// Simultaneous events have the native engine's order.
void Paths::RunNext(Nanoseconds now) {
  if (further_ && further_->NextEvent() <= now) {
    RunFurther(now);
  } else if (next_change_ <= now) {
    link_.SetRate(now, rates_[next_rate_].second);
    SetNextRate(next_rate_ + 1);
  } else if (late_.due() <= now) {
    Forward(now, late_.Pop());
  } else if (behind_.due() <= now) {
    Forward(now, behind_.Pop());
  } else if (link_.departure() <= now) {
    Depart(now);
  } else if (entries_.time() <= now) {
    Enter();
  } else {
    const std::size_t index = returns_.index();
    FlowState& flow = flows_[index];
    Deliver(now, flow.returning.Pop(), false);
    returns_.Set(index, flow.returning.due());
  }
}

Nanoseconds Paths::Further::NextEvent() const {
  return std::min({links.NextDeparture(), behind_reverse.due(), acks.due()});
}

void Paths::RunFurther(Nanoseconds now) {
  Further& further = *further_;
  Packet packet;
  if (further.behind_reverse.due() <= now) {
    Deliver(now, further.behind_reverse.Pop(), true);
  } else if (further.links.second.departure() <= now) {
    further.links.second.Depart(packet);
    Deliver(now, packet, true);
  } else if (further.links.reverse.departure() <= now) {
    further.links.reverse.Depart(packet);
    if (flows_[packet.flow].route.entry == &further.links.reverse) {
      further.behind_reverse.Push(now + link_delay_, packet);
    } else {
      ReturnFrom(now, packet);
    }
  } else {
    packet = further.acks.Pop();
    flows_[packet.flow].route.acks->Enqueue(now, packet.packet, packet.flow);
  }
}

void Paths::SetNextRate(std::size_t index) {
  next_rate_ = index;
  next_change_ = index < rates_.size() ? FromSeconds(rates_[index].first) : kNever;
}

/// A packet reaches the first link.
void Paths::Enter() {
  const std::size_t index = entries_.index();
  FlowState& flow = flows_[index];
  const Nanoseconds now = entries_.time();
  const Packet packet = flow.entering.Pop();
  entries_.Set(index, flow.entering.due());
  flow.route.entry->Enqueue(now, packet.packet, packet.flow);
}

/// A packet leaves the bottleneck.
void Paths::Depart(Nanoseconds now) {
  Packet packet;
  const bool has_arrived = link_.Depart(packet);
  const Nanoseconds delay = reordering_.NextDelay(packet.packet.bytes);
  if (!has_arrived) {
    Lose(packet);
  } else if (flows_[packet.flow].route.acks == &link_) {
    ReturnFrom(now, packet);
  } else {
    (delay > 0 ? late_ : behind_).Push(now + link_delay_ + delay, packet);
  }
}

/// Data has the delay behind the bottleneck behind it.
void Paths::Forward(Nanoseconds now, const Packet& packet) {
  if (Bottleneck* second = flows_[packet.flow].route.second) {
    second->Enqueue(now, packet.packet, packet.flow);
  } else {
    Deliver(now, packet, true);
  }
}

/// A packet goes on the return path.
void Paths::ReturnFrom(Nanoseconds now, const Packet& packet) {
  FlowState& flow = flows_[packet.flow];
  const Nanoseconds due = flow.path.Arrival(now);
  if (due == kNever) {
    Lose(packet);
    return;
  }
  flow.returning.Push(due, packet);
  returns_.Set(packet.flow, flow.returning.due());
}

void Paths::Deliver(Nanoseconds now, const Packet& packet, bool is_data) {
  arrivals_.push_back({.time = now, .packet = packet, .is_data = is_data});
}

Paths::Packet Paths::Lane::Pop() {
  const Packet packet = packets_.Front().packet;
  packets_.Pop();
  return packet;
}

void Paths::StartStep(Nanoseconds now) {
  link_.StartStep(now);
  if (further_) further_->links.StartStep(now);
}

LinkRow Paths::GetRow(Nanoseconds now) {
  LinkRow row = link_.GetRow(now);
  if (further_) further_->links.AddTo(row, now);
  return row;
}

}  // namespace bbrgym
