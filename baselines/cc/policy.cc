// A trained policy: the controller of an agent (agent.cc) whose gains come from a network that it runs itself, once per
// interval, on features of its own flow. docs/algorithms/policy.md says how each column is computed.

#include "baselines/cc/policy.h"

#include <algorithm>
#include <cmath>

namespace bbrgym {

namespace {

AgentParameters WithModelOf(const Connection& connection, AgentParameters parameters) {
  if (connection.policy && connection.policy->is_bbr_model() && !parameters.is_bbr_model) {
    BbrModelParameters model = BbrModelParameters::OfBbr();
    model.burst_packets = parameters.burst_packets;  // how it sends is its flow's matter
    static_cast<BbrModelParameters&>(parameters) = model;
  }
  return parameters;
}

}  // namespace

PolicyController::PolicyController(const Connection& connection, const AgentParameters& parameters)
    : AgentController(connection, WithModelOf(connection, parameters)),
      chosen_{parameters.cwnd_gain, parameters.pacing_gain} {
  if (!connection.policy) return;
  memory_ = connection.policy->MakeMemory();
  Decide(PolicyColumns::AtStart());
}

void PolicyController::OnAck(const AckEvent& ack) {
  AgentController::OnAck(ack);
  if (!connection().policy) return;
  step_.lost += ack.bytes_lost;
  if (ack.rtt > 0) {
    last_rtt_ = ack.rtt;
    step_.rtts.Add(ack.rtt);
  }
  if (!has_begun_) {
    // The first step began with the first packet, a round trip ago.
    has_begun_ = true;
    step_.begin = ack.now - (ack.rtt > 0 ? ack.rtt : connection().initial_rtt);
    next_decision_ = step_.begin + Interval();
  }
  if (ack.now < next_decision_) return;
  Decide(Columns(ack));
  step_ = {.begin = ack.now, .sent_before = ack.sent, .delivered_before = ack.delivered};
  // Decisions stay on their grid: one that is late because there was no ACK does not delay the next ones.
  const Nanoseconds interval = Interval();
  next_decision_ += ((ack.now - next_decision_) / interval + 1) * interval;
}

Nanoseconds PolicyController::Interval() const {
  const Nanoseconds rtt = min_rtt() > 0 ? min_rtt() : connection().initial_rtt;
  return connection().policy->Interval(rtt > 0 ? rtt : kMillisecond);
}

PolicyColumns PolicyController::Columns(const AckEvent& ack) const {
  const auto packet = static_cast<double>(connection().packet_bytes);
  const double seconds = static_cast<double>(ack.now - step_.begin) / 1e9;
  const auto sent = static_cast<double>(ack.sent - step_.sent_before);
  const auto delivered = static_cast<double>(ack.delivered - step_.delivered_before);
  PolicyColumns columns;
  columns.sent_packets = sent / packet;
  columns.delivered_packets = delivered / packet;
  columns.lost_packets = static_cast<double>(step_.lost) / packet;
  columns.send_rate_mbps = sent * 8e-6 / seconds;
  columns.delivery_rate_mbps = delivered * 8e-6 / seconds;
  if (step_.rtts.count > 0) {
    columns.rtt_min_ms = static_cast<double>(step_.rtts.least) / 1e6;
    columns.rtt_max_ms = static_cast<double>(step_.rtts.most) / 1e6;
    columns.rtt_mean_ms = step_.rtts.mean() / 1e6;
  }
  if (step_.rtts.count > 1) columns.rtt_jitter_ms = step_.rtts.jitter() / 1e6;
  if (last_rtt_ > 0) columns.rtt_last_ms = static_cast<double>(last_rtt_) / 1e6;
  // Before this ACK, as in a row that ends between two ACKs.
  columns.in_flight_packets = static_cast<double>(ack.prior_in_flight) / packet;
  columns.cwnd_packets = static_cast<double>(decision().cwnd) / packet;
  columns.SetMetrics(metrics());
  return columns;
}

void PolicyController::Decide(PolicyColumns columns) {
  const PolicyNetwork& policy = *connection().policy;
  columns.steered_cwnd_gain = chosen_.cwnd;
  columns.steered_pacing_gain = chosen_.pacing;
  columns.preference = preference();
  policy.Observe(columns, memory_);
  const Gains gains = policy.gain_map().ToGains(policy.Act(memory_), columns.bdp_packets);
  // Large weights can overflow: keep the last gain then.
  if (!std::isnan(gains.cwnd)) chosen_.cwnd = gains.cwnd;
  if (!std::isnan(gains.pacing)) chosen_.pacing = gains.pacing;
  AgentController::Steer(chosen_.cwnd, chosen_.pacing);
}

}  // namespace bbrgym
