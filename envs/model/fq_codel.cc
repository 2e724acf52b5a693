// FQ-CoDel: deficit round robin with two lists of flows, those that began to send within the last round and the others
// (RFC 8290, section 4). A turn ends when the credits are zero or less (section 3; 4.2 says negative). Two deviations:
//
// * Each flow of the scenario has a queue of its own. The RFC hashes flows into 1024 queues, some of which they share.
// * A quantum is the link's MTU, without the link layer's 14 bytes (section 5.2.4), which no packet has here.

#include "envs/model/fq_codel.h"

#include <algorithm>

namespace bbrgym {

namespace {

constexpr std::size_t kMostDropsAtOnce = 64;  // section 4.1

}  // namespace

FqCodelQueue::FqCodelQueue(const Scenario& scenario, QueueTally& tally)
    : QueueDiscipline(scenario, tally),
      quantum_(scenario.MtuBytes()),
      flows_(scenario.flows.size(), FlowQueue{.fifo = {}, .codel = Codel(scenario)}) {}

void FqCodelQueue::Push(Nanoseconds now, const QueuedPacket& packet) {
  FlowQueue& flow = flows_[packet.flow];
  flow.fifo.Push(now, packet);
  ++size_;
  bytes_ += packet.bytes();
  if (!flow.is_listed) {
    flow.is_listed = true;
    flow.deficit = quantum_;
    new_flows_.Push(packet.flow);
  }
  if (size_ > limit()) DropFromFattest();
}

bool FqCodelQueue::Take(Nanoseconds now, TimedPacket& packet) {
  for (;;) {
    const bool is_new = !new_flows_.IsEmpty();
    Ring<std::uint32_t>& list = is_new ? new_flows_ : old_flows_;
    if (list.IsEmpty()) return false;
    const std::uint32_t index = list.Front();
    FlowQueue& flow = flows_[index];
    if (flow.deficit <= 0) {
      flow.deficit += quantum_;
      list.Pop();
      old_flows_.Push(index);
    } else if (TakeFrom(flow, now, packet)) {
      flow.deficit -= packet.queued.bytes();
      return true;
    } else {
      list.Pop();
      // A new flow stays for one round more: else it would be new again with its next packet, and always go first.
      flow.is_listed = is_new;
      if (is_new) old_flows_.Push(index);
    }
  }
}

bool FqCodelQueue::TakeFrom(FlowQueue& flow, Nanoseconds now, TimedPacket& packet) {
  size_ -= flow.fifo.size();
  bytes_ -= flow.fifo.bytes();
  const bool has_packet = flow.codel.Pop(now, flow.fifo, tally_, packet);
  size_ += flow.fifo.size();
  bytes_ += flow.fifo.bytes();
  return has_packet;
}

/// Many at once, since finding the flow takes time, and an overload seldom ends with one packet.
void FqCodelQueue::DropFromFattest() {
  FlowQueue& fattest = *std::max_element(flows_.begin(), flows_.end(), [](const FlowQueue& a, const FlowQueue& b) {
    return a.fifo.bytes() < b.fifo.bytes();
  });
  TimedPacket packet;
  for (std::size_t left = std::min(kMostDropsAtOnce, (fattest.fifo.size() + 1) / 2); left > 0; --left) {
    fattest.fifo.Pop(packet);
    tally_.Drop(packet.queued);
    --size_;
    bytes_ -= packet.queued.bytes();
  }
}

}  // namespace bbrgym
