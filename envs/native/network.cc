#include "envs/native/network.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "baselines/cc/random.h"
#include "baselines/cc/registry.h"

namespace bbrgym {

namespace {

constexpr std::int64_t kInitialCwndPackets = 10;  // RFC 6928
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Nanoseconds FromSeconds(double seconds) {
  // A time far beyond any end is as good as never.
  constexpr double kLatest = 9e18;
  return static_cast<Nanoseconds>(std::min(seconds * 1e9, kLatest));
}

}  // namespace

void Network::Reset(Scenario scenario, std::uint64_t seed) {
  if (scenario.flows.empty()) throw std::invalid_argument("a scenario needs at least one flow");
  for (const Flow& flow : scenario.flows) MakeController(flow.algorithm, Connection{}, flow.parameters);
  static_cast<void>(scenario.IsCodel());
  scenario_ = std::move(scenario);
  now_ = step_start_ = 0;
  end_ = FromSeconds(scenario_.duration_s);
  next_rate_ = 0;
  Random seeds(seed);
  link_.Reset(scenario_, seeds.Next());
  double shortest_rtt_ms = scenario_.flows.front().rtt_ms;
  for (const Flow& flow : scenario_.flows) shortest_rtt_ms = std::min(shortest_rtt_ms, flow.rtt_ms);

  flows_.clear();
  flows_.resize(scenario_.flows.size());
  next_.Reset(flows_.size(), INT64_MAX);
  open_flows_ = unfinished_flows_ = 0;
  for (std::size_t i = 0; i < flows_.size(); ++i) {
    const Flow& given = scenario_.flows[i];
    FlowState& flow = flows_[i];
    flow.seed = seeds.Next();
    flow.rtt = static_cast<Nanoseconds>(given.rtt_ms * 1e6);
    flow.start = FromSeconds(given.start_s);
    flow.jitter = AckJitter(given.jitter_ms, flow.seed);
    flow.handshake_rtt = flow.jitter.Arrival(flow.start, flow.rtt) - flow.start;
    // The handshake takes a round trip; then the first packet is under way to the bottleneck, as in ns3_scratch's
    // dumbbell, whose bottleneck has a quarter of the shortest RTT behind it.
    flow.first_send =
        flow.start + flow.handshake_rtt + static_cast<Nanoseconds>((given.rtt_ms / 2 - shortest_rtt_ms / 4) * 1e6);
    if (given.stop_s) flow.stop = FromSeconds(*given.stop_s);
    ++(given.size_bytes ? open_flows_ : unfinished_flows_);
    UpdateNext(i, flow);
  }
  Step(0);
}

void Network::Steer(std::int64_t index, double cwnd_gain, double pacing_gain) {
  if (index < 0 || static_cast<std::size_t>(index) >= flows_.size()) {
    throw std::out_of_range("there is no flow " + std::to_string(index) + " of " + std::to_string(flows_.size()));
  }
  const std::string& algorithm = scenario_.flows[static_cast<std::size_t>(index)].algorithm;
  if (algorithm != "agent") {
    throw std::invalid_argument("a flow of algorithm '" + algorithm +
                                "' cannot be steered: only 'agent' takes gains from outside");
  }
  FlowState& flow = flows_[static_cast<std::size_t>(index)];
  flow.is_steered = true;
  flow.cwnd_gain = cwnd_gain;
  flow.pacing_gain = pacing_gain;
  // What the sender does follows with the next ACK, as everything that a controller decides.
  if (flow.sender) flow.sender->controller().Steer(cwnd_gain, pacing_gain);
}

void Network::Step(Nanoseconds duration) {
  if (flows_.empty()) throw std::logic_error("step before the first reset");
  step_start_ = now_;
  link_.StartStep(now_);
  for (FlowState& flow : flows_) {
    if (flow.sender) {
      flow.sender_before = flow.sender->counts();
      flow.sender->StartStep();
    }
    flow.received_before = flow.receiver.counts();
  }
  const Nanoseconds end = std::min(end_, duration > end_ - now_ ? end_ : now_ + std::max<Nanoseconds>(duration, 0));
  if (!IsComplete() && end > now_) RunUntil(end);
}

void Network::RunUntil(Nanoseconds end) {
  while (!IsComplete()) {
    const Nanoseconds flow_time = next_.time();
    const Nanoseconds departure = link_.departure();
    const Nanoseconds time = std::min(flow_time, departure);
    if (next_rate_ < scenario_.rate_schedule.size()) {
      const Nanoseconds change = FromSeconds(scenario_.rate_schedule[next_rate_].first);
      if (change <= time && change <= end) {
        link_.SetRate(change, scenario_.rate_schedule[next_rate_].second);
        ++next_rate_;
        continue;
      }
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
  if (!IsComplete()) now_ = end;
}

void Network::Depart() {
  Bottleneck::Item item;
  const bool has_arrived = link_.Depart(item);
  if (!has_arrived) return;
  FlowState& flow = flows_[item.flow];
  if (flow.receiver.OnPacket(now_, item.packet)) SendAck(flow, now_);
  const auto& size = scenario_.flows[item.flow].size_bytes;
  if (size && !flow.is_complete && flow.receiver.counts().received >= *size) {
    flow.is_complete = true;
    --open_flows_;
    End(flow, now_);
  }
  UpdateNext(item.flow, flow);
}

void Network::SendAck(FlowState& flow, Nanoseconds now) {
  Ack& ack = flow.acks.PushSlot();
  ack.time = flow.jitter.Arrival(now, flow.rtt);
  flow.receiver.WriteAck(ack.packet);
}

void Network::RunFlow(std::size_t index, Nanoseconds now) {
  FlowState& flow = flows_[index];
  if (!flow.acks.IsEmpty() && flow.acks.Front().time <= now) {
    if (flow.sender->controller().WantsFlowRates()) TellFlowRates(flow);
    flow.sender->OnAck(now, flow.acks.Front().packet);
    flow.acks.Pop();
    Pump(index, flow, now);
  } else if (flow.receiver.AckDue() <= now) {
    SendAck(flow, now);
  } else if (flow.stop <= now && flow.phase != Phase::kEnded) {
    End(flow, now);
  } else if (flow.phase == Phase::kBefore) {
    flow.phase = Phase::kConnecting;
  } else if (flow.phase == Phase::kConnecting) {
    Connect(index, flow);
    Pump(index, flow, now);
  } else if (flow.phase == Phase::kOpen) {
    flow.sender->OnTimer(now);
    Pump(index, flow, now);
  }
  UpdateNext(index, flow);
}

void Network::Pump(std::size_t index, FlowState& flow, Nanoseconds now) {
  DataPacket packet;
  while (flow.sender->NextPacket(now, packet)) link_.Enqueue(now, packet, static_cast<std::uint32_t>(index));
}

void Network::UpdateNext(std::size_t index, const FlowState& flow) {
  Nanoseconds next = flow.acks.IsEmpty() ? INT64_MAX : flow.acks.Front().time;
  next = std::min(next, flow.receiver.AckDue());
  switch (flow.phase) {
    case Phase::kBefore:
      next = std::min(flow.start, flow.stop);
      break;
    case Phase::kConnecting:
      next = std::min(flow.first_send, flow.stop);
      break;
    case Phase::kOpen:
      next = std::min({next, flow.sender->NextTimer(), flow.stop});
      break;
    case Phase::kEnded:
      break;
  }
  next_.Set(index, next);
}

void Network::Connect(std::size_t index, FlowState& flow) {
  const Flow& given = scenario_.flows[index];
  const Connection connection{.packet_bytes = scenario_.packet_bytes,
                              .initial_cwnd = kInitialCwndPackets * scenario_.packet_bytes,
                              .initial_rtt = flow.handshake_rtt,
                              .seed = flow.seed};
  std::unique_ptr<Controller> controller = MakeController(given.algorithm, connection, given.parameters);
  if (flow.is_steered) controller->Steer(flow.cwnd_gain, flow.pacing_gain);
  flow.sender = std::make_unique<Sender>(std::move(controller), connection, given.size_bytes);
  flow.phase = Phase::kOpen;
}

void Network::End(FlowState& flow, Nanoseconds now) {
  if (flow.phase == Phase::kEnded) return;
  flow.phase = Phase::kEnded;
  flow.end = now;
  if (flow.sender) flow.sender->Stop();
}

void Network::TellFlowRates(FlowState& flow) {
  BitsPerSecond lowest = 0;
  BitsPerSecond highest = 0;
  for (const FlowState& other : flows_) {
    const BitsPerSecond rate = other.sender ? other.sender->last_rate() : 0;
    if (rate <= 0) continue;
    lowest = lowest == 0 ? rate : std::min(lowest, rate);
    highest = std::max(highest, rate);
  }
  flow.sender->SetFlowRates(lowest, highest);
}

double Network::ActiveShare(const FlowState& flow) const {
  const Nanoseconds from = std::max(step_start_, flow.start);
  const Nanoseconds to = std::min(now_, flow.end);
  if (flow.phase == Phase::kBefore || to < from) return 0.0;
  // At the very beginning of the episode there is no step yet to have a share of.
  return now_ == step_start_ ? 1.0 : static_cast<double>(to - from) / static_cast<double>(now_ - step_start_);
}

void Network::WriteLinkRow(double* row) {
  const Bottleneck::Step step = link_.GetStep(now_);
  for (const double value : {step.rate_mbps, step.utilisation, step.queue_mean_packets, step.queue_max_packets,
                             step.queue_mean_ms, step.queue_max_ms, step.drops, step.random_losses}) {
    *row++ = value;
  }
}

void Network::WriteFlowRow(std::size_t index, double* row) const {
  const FlowState& flow = flows_[index];
  static const Sender::Counts kNothing;
  const Sender::Counts& now = flow.sender ? flow.sender->counts() : kNothing;
  const Sender::Counts& before = flow.sender_before;
  const Receiver::Counts& received = flow.receiver.counts();
  const Receiver::Counts& received_before = flow.received_before;
  const auto packet = static_cast<double>(scenario_.packet_bytes);
  const double seconds = static_cast<double>(now_ - step_start_) / 1e9;
  const auto mbps = [seconds](Bytes bytes) {
    return seconds > 0.0 ? static_cast<double>(bytes) * 8e-6 / seconds : 0.0;
  };
  const bool is_open = flow.phase == Phase::kOpen;
  const Sender::RttSamples rtts = flow.sender ? flow.sender->rtt_samples() : Sender::RttSamples{};

  *row++ = ActiveShare(flow);
  *row++ = static_cast<double>(now.sent_packets - before.sent_packets);
  *row++ = static_cast<double>(now.delivered_bytes - before.delivered_bytes) / packet;
  *row++ = static_cast<double>(now.lost_bytes - before.lost_bytes) / packet;
  *row++ = static_cast<double>(now.retransmitted_packets - before.retransmitted_packets);
  *row++ = static_cast<double>(now.timeouts - before.timeouts);
  *row++ = static_cast<double>(received.received - received_before.received);
  *row++ = static_cast<double>(received.arrived - received_before.arrived);
  *row++ = static_cast<double>(received.inorder - received_before.inorder);
  *row++ = mbps(now.sent_bytes - before.sent_bytes);
  *row++ = mbps(now.delivered_bytes - before.delivered_bytes);
  *row++ = mbps(received.received - received_before.received);
  *row++ = rtts.count == 0 ? kNaN : static_cast<double>(rtts.least) / 1e6;
  *row++ = rtts.count == 0 ? kNaN : static_cast<double>(rtts.sum) / static_cast<double>(rtts.count) / 1e6;
  *row++ = now.last_rtt == 0 ? kNaN : static_cast<double>(now.last_rtt) / 1e6;
  *row++ = is_open ? static_cast<double>(flow.sender->in_flight()) / packet : 0.0;
  *row++ = is_open ? static_cast<double>(flow.sender->decision().cwnd) / packet : kNaN;
  *row++ = is_open && flow.sender->decision().is_paced ? static_cast<double>(flow.sender->decision().pacing_rate) / 1e6
                                                       : kNaN;
  *row++ = 0.0;  // no socket buffers: nothing but the window limits a sender
  const Metrics metrics = flow.sender ? flow.sender->controller().metrics() : Metrics{};
  std::copy(metrics.values().begin(), metrics.values().end(), row);
}

std::vector<const char*> FlowColumns() {
  return {
      "is_active",          "sent_packets",    "delivered_packets", "lost_packets",      "retransmitted_packets",
      "rto_count",          "received_bytes",  "arrived_bytes",     "inorder_bytes",     "send_rate_mbps",
      "delivery_rate_mbps", "throughput_mbps", "rtt_min_ms",        "rtt_mean_ms",       "rtt_last_ms",
      "in_flight_packets",  "cwnd_packets",    "pacing_rate_mbps",  "is_buffer_limited",
#define METRIC(name, meaning) #name,
#include "baselines/cc/metrics.def"
#undef METRIC
  };
}

std::vector<const char*> LinkColumns() {
  return {"rate_mbps",    "utilisation", "queue_mean_packets", "queue_max_packets", "queue_mean_ms",
          "queue_max_ms", "drops",       "random_losses"};
}

}  // namespace bbrgym
