#include "envs/transport/flow_row.h"

#include <algorithm>
#include <limits>

namespace bbrgym {

double ActiveShare(const Span& flow, const Span& step) {
  const Nanoseconds begin = std::max(step.begin, flow.begin);
  const Nanoseconds end = std::min(step.end, flow.end);
  if (end < begin) return 0.0;
  return step.begin == step.end ? 1.0 : static_cast<double>(end - begin) / static_cast<double>(step.end - step.begin);
}

FlowRow MakeFlowRow(const FlowStep& step, const FlowReading& reading) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  const auto& [sent, received] = reading.now;
  const auto& [sent_before, received_before] = step.before;
  const auto packet_bytes = static_cast<double>(step.packet_bytes);
  const auto since = [](auto now, auto before) { return static_cast<double>(now - before); };
  const auto mbps = [&step](Bytes bytes) {
    return step.seconds > 0.0 ? static_cast<double>(bytes) * 8e-6 / step.seconds : 0.0;
  };
  const auto ms = [](Nanoseconds time) { return static_cast<double>(time) / 1e6; };
  const RttSample& rtts = reading.rtts;
  const Delivery::Delays& delays = reading.delivery.delays();
  const std::optional<Nanoseconds>& completion = reading.delivery.completion();

  return {
      .is_active = step.active_share,
      .sent_packets = since(sent.sent_packets, sent_before.sent_packets),
      .delivered_packets = since(sent.delivered_bytes, sent_before.delivered_bytes) / packet_bytes,
      .lost_packets = since(sent.lost_bytes, sent_before.lost_bytes) / packet_bytes,
      .marked_packets = since(sent.marked_bytes, sent_before.marked_bytes) / packet_bytes,
      .retransmitted_packets = since(sent.retransmitted_packets, sent_before.retransmitted_packets),
      .rto_count = since(sent.timeouts, sent_before.timeouts),
      .received_bytes = since(received.received, received_before.received),
      .arrived_bytes = since(received.arrived, received_before.arrived),
      .inorder_bytes = since(received.inorder, received_before.inorder),
      .send_rate_mbps = mbps(sent.sent_bytes - sent_before.sent_bytes),
      .delivery_rate_mbps = mbps(sent.delivered_bytes - sent_before.delivered_bytes),
      .throughput_mbps = mbps(received.received - received_before.received),
      .rtt_min_ms = rtts.count == 0 ? kNaN : ms(rtts.least),
      .rtt_max_ms = rtts.count == 0 ? kNaN : ms(rtts.most),
      .rtt_mean_ms = rtts.count == 0 ? kNaN : rtts.mean() / 1e6,
      .rtt_jitter_ms = rtts.count < 2 ? kNaN : rtts.jitter() / 1e6,
      .rtt_last_ms = sent.last_rtt == 0 ? kNaN : ms(sent.last_rtt),
      .in_flight_packets = step.is_open ? static_cast<double>(reading.in_flight) / packet_bytes : 0.0,
      .cwnd_packets = step.is_open && reading.cwnd ? static_cast<double>(*reading.cwnd) / packet_bytes : kNaN,
      .pacing_rate_mbps = step.is_open && reading.pacing_rate ? static_cast<double>(*reading.pacing_rate) / 1e6 : kNaN,
      .is_buffer_limited = reading.is_buffer_limited ? 1.0 : 0.0,
      .app_delay_mean_ms =
          delays.count == 0 ? kNaN : static_cast<double>(delays.sum) / static_cast<double>(delays.count) / 1e6,
      .completion_time_ms = completion ? ms(*completion) : kNaN,
      .metrics = reading.controller ? reading.controller->metrics() : Metrics{},
  };
}

FlowCounts CountsOf(const Sender* sender, const Receiver& receiver) {
  return {.sender = sender ? sender->counts() : Sender::Counts{}, .receiver = receiver.counts()};
}

FlowReading ReadingOf(const Sender* sender, const Receiver& receiver, const Delivery& delivery) {
  const Decision decision = sender ? sender->decision() : Decision{};
  return {
      .now = CountsOf(sender, receiver),
      .rtts = sender ? sender->rtt_samples() : RttSample{},
      .in_flight = sender ? sender->in_flight() : 0,
      .cwnd = sender ? std::optional(decision.cwnd) : std::nullopt,
      .pacing_rate = decision.is_paced ? std::optional(decision.pacing_rate) : std::nullopt,
      .is_buffer_limited = false,  // there are no socket buffers
      .delivery = delivery,
      .controller = sender ? &sender->controller() : nullptr,
  };
}

}  // namespace bbrgym
