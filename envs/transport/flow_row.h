#pragma once

#include <optional>

#include "envs/model/rows.h"
#include "envs/transport/receiver.h"
#include "envs/transport/sender.h"

namespace bbrgym {

/// Totals of a flow since its start.
struct FlowCounts {
  Sender::Counts sender;
  Receiver::Counts receiver;
};

// The members of these two have no defaults: the compiler refuses a transport that leaves one out.

/// A step from the view of one flow.
struct FlowStep {
  double seconds;
  /// Share of the step, 0 to 1, in which the flow had begun and had not ended.
  double active_share;
  Bytes packet_bytes;
  /// Whether the flow has begun and has not ended; otherwise it has no window and no pace.
  bool is_open;
  /// At the start of the step.
  const FlowCounts& before;
};

/// What a transport knows of a flow at the end of a step.
struct FlowReading {
  FlowCounts now;
  /// The samples of the step.
  Sender::RttSamples rtts;
  Bytes in_flight;
  /// Nothing before the handshake is done.
  std::optional<Bytes> cwnd;
  /// Nothing if the flow does not pace.
  std::optional<BitsPerSecond> pacing_rate;
  /// Whether a socket buffer limited the sender in the step.
  bool is_buffer_limited;
  /// Null if the flow has none of ours, or not yet.
  const Controller* controller;
};

/// The row of a flow over any transport.
FlowRow MakeFlowRow(const FlowStep& step, const FlowReading& reading);

// A flow over our transport; `sender` is null until the handshake is done.
FlowCounts CountsOf(const Sender* sender, const Receiver& receiver);
FlowReading ReadingOf(const Sender* sender, const Receiver& receiver);

}  // namespace bbrgym
