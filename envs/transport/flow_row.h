#pragma once

#include <vector>

#include "envs/transport/receiver.h"
#include "envs/transport/sender.h"

namespace bbrgym {

/// What the row of a flow over our transport is made of.
struct FlowStep {
  /// Of the step, in which the flow had begun and not ended.
  double active_share = 0.0;
  Nanoseconds duration = 0;
  Bytes packet_bytes = 0;
  /// The handshake is done and the flow has not ended.
  bool is_open = false;
  /// Null before the handshake is done.
  const Sender* sender = nullptr;
  Receiver::Counts received;
  // At the step's begin.
  Sender::Counts sender_before;
  Receiver::Counts received_before;
};

/// Writes `FlowColumns()` values.
void WriteFlowRow(const FlowStep& step, double* row);

/// The columns of a flow's row, in order: the same as `bbrgym.envs.columns.FLOW_COLUMNS` (a test compares).
std::vector<const char*> FlowColumns();

}  // namespace bbrgym
