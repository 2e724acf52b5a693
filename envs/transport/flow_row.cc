#include "envs/transport/flow_row.h"

#include <algorithm>
#include <limits>

namespace bbrgym {

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace

void WriteFlowRow(const FlowStep& step, double* row) {
  static const Sender::Counts kNothing;
  const Sender::Counts& now = step.sender ? step.sender->counts() : kNothing;
  const Sender::Counts& before = step.sender_before;
  const auto packet = static_cast<double>(step.packet_bytes);
  const double seconds = static_cast<double>(step.duration) / 1e9;
  const auto mbps = [seconds](Bytes bytes) {
    return seconds > 0.0 ? static_cast<double>(bytes) * 8e-6 / seconds : 0.0;
  };
  const Sender::RttSamples rtts = step.sender ? step.sender->rtt_samples() : Sender::RttSamples{};

  *row++ = step.active_share;
  *row++ = static_cast<double>(now.sent_packets - before.sent_packets);
  *row++ = static_cast<double>(now.delivered_bytes - before.delivered_bytes) / packet;
  *row++ = static_cast<double>(now.lost_bytes - before.lost_bytes) / packet;
  *row++ = static_cast<double>(now.retransmitted_packets - before.retransmitted_packets);
  *row++ = static_cast<double>(now.timeouts - before.timeouts);
  *row++ = static_cast<double>(step.received.received - step.received_before.received);
  *row++ = static_cast<double>(step.received.arrived - step.received_before.arrived);
  *row++ = static_cast<double>(step.received.inorder - step.received_before.inorder);
  *row++ = mbps(now.sent_bytes - before.sent_bytes);
  *row++ = mbps(now.delivered_bytes - before.delivered_bytes);
  *row++ = mbps(step.received.received - step.received_before.received);
  *row++ = rtts.count == 0 ? kNaN : static_cast<double>(rtts.least) / 1e6;
  *row++ = rtts.count == 0 ? kNaN : static_cast<double>(rtts.sum) / static_cast<double>(rtts.count) / 1e6;
  *row++ = now.last_rtt == 0 ? kNaN : static_cast<double>(now.last_rtt) / 1e6;
  *row++ = step.is_open ? static_cast<double>(step.sender->in_flight()) / packet : 0.0;
  *row++ = step.is_open ? static_cast<double>(step.sender->decision().cwnd) / packet : kNaN;
  *row++ = step.is_open && step.sender->decision().is_paced
               ? static_cast<double>(step.sender->decision().pacing_rate) / 1e6
               : kNaN;
  *row++ = 0.0;  // no socket buffers: nothing but the window limits a sender
  const Metrics metrics = step.sender ? step.sender->controller().metrics() : Metrics{};
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

}  // namespace bbrgym
