#pragma once

#include <optional>

#include "baselines/cc/rtt_sample.h"
#include "envs/model/rows.h"
#include "envs/transport/delivery.h"
#include "envs/transport/receiver.h"
#include "envs/transport/sender.h"

namespace bbrgym {

/// Totals of a flow since its start.
struct FlowCounts {
  Sender::Counts sender;
  Receiver::Counts receiver;
};

// The members of the next two have no defaults, so a transport that leaves one out does not compile.

/// A step of one flow.
struct FlowStep {
  double seconds;
  /// `ActiveShare`, or 0 if the flow has not begun.
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
  RttSample rtts;
  Bytes in_flight;
  /// Nothing until the handshake is done.
  std::optional<Bytes> cwnd;
  /// Nothing if the flow does not pace.
  std::optional<BitsPerSecond> pacing_rate;
  /// Whether a socket buffer limited the sender in the step.
  bool is_buffer_limited;
  /// Its `delays` are those of the step.
  const Delivery& delivery;
  /// Null without a controller, or until the handshake is done.
  const Controller* controller;
};

/// From begin to end, both in ns.
struct Span {
  Nanoseconds begin;
  Nanoseconds end;
};

/// The share of a step, 0 to 1, in which a flow was there. At the start of an episode, when there is no step yet, it
/// is 1.
double ActiveShare(const Span& flow, const Span& step);

/// The row of a flow over any transport.
FlowRow MakeFlowRow(const FlowStep& step, const FlowReading& reading);

// What is known of a flow over this transport; `sender` is null until the handshake is done.
FlowCounts CountsOf(const Sender* sender, const Receiver& receiver);
FlowReading ReadingOf(const Sender* sender, const Receiver& receiver, const Delivery& delivery);

}  // namespace bbrgym
