#include "envs/linux/emulator.h"

#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "envs/linux/serve.h"

namespace bbrgym {

namespace {

constexpr int kBatch = 64;                         // so that what is due leaves while much comes
constexpr std::size_t kMostHeaderBytes = 60 + 60;  // of IPv4 and TCP
constexpr std::size_t kLatenessUnits = 10'000;     // up to 100 ms

std::uint16_t Get16(const std::uint8_t* bytes) {
  return static_cast<std::uint16_t>(bytes[0] << 8U | bytes[1]);
}

std::uint32_t Get32(const std::uint8_t* bytes) {
  return static_cast<std::uint32_t>(Get16(bytes)) << 16U | Get16(bytes + 2);
}

constexpr std::size_t kIpv4Header = 20;  // without options
constexpr std::uint16_t kMoreFragments = 0x2000;
constexpr std::uint16_t kFragmentOffset = 0x1FFF;

/// The ECN field of an IPv4 header.
Ecn EcnOf(const std::uint8_t* header) {
  return static_cast<Ecn>(header[1] & 3U);
}

/// Sets the ECN field of an IPv4 header to CE, and corrects its checksum (RFC 1624, equation 3).
void SetCe(std::uint8_t* header) {
  constexpr auto kCe = static_cast<std::uint8_t>(Ecn::kCe);
  const std::uint16_t before = Get16(header);
  header[1] |= kCe;
  std::uint32_t sum = 0U + static_cast<std::uint16_t>(~Get16(header + 10)) + static_cast<std::uint16_t>(~before);
  sum += Get16(header);
  while (sum > 0xFFFF) sum = (sum & 0xFFFFU) + (sum >> 16U);
  header[10] = static_cast<std::uint8_t>(~sum >> 8U);
  header[11] = static_cast<std::uint8_t>(~sum);
}

/// Whether sequence number `a` comes before `b` (RFC 9293, section 3.4).
bool IsBefore(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::int32_t>(a - b) < 0;
}

}  // namespace

Emulator::Emulator(const Scenario& scenario, const EpisodeSeeds& seeds, int sender_device, int receiver_device)
    : frame_bytes_(
          std::max<std::size_t>(static_cast<std::size_t>(scenario.packet_bytes) + kMostHeaderBytes, kLargestAnswer)),
      sender_device_(sender_device),
      receiver_device_(receiver_device),
      paths_(scenario, seeds),
      flows_(scenario.flows.size()),
      lateness_(kLatenessUnits + 1) {
  for (std::size_t i = 0; i < flows_.size(); ++i) {
    flows_[i].is_command = scenario.flows[i].IsCommand();
    flows_[i].is_from_server = flows_[i].is_command && scenario.flows[i].data_from == "server";
  }
  spare_ = TakeSlot();
}

void Emulator::Run(const EpisodeClock& clock) {
  UseRealTime(Priority::kEmulator);
  std::vector<pollfd> devices = {{sender_device_, POLLIN, 0}, {receiver_device_, POLLIN, 0}};
  const auto work = [&] {
    const std::lock_guard lock(mutex_);
    Advance(clock.Now());
    for (int i = 0; i < kBatch && devices[0].revents != 0 && AcceptData(clock.Now()); ++i) {
    }
    for (int i = 0; i < kBatch && devices[1].revents != 0 && AcceptAck(clock.Now()); ++i) {
    }
    return paths_.NextEvent();
  };
  Serve("emulator", devices, clock, work, [this] { return is_stopped_.load(); });
}

LinkRow Emulator::EndStep(const EpisodeClock& clock) {
  const std::lock_guard lock(mutex_);
  const Nanoseconds now = clock.Now();
  Advance(now);
  const LinkRow row = paths_.GetRow(now);
  paths_.StartStep(now);
  return row;
}

Passage Emulator::GetPassage(std::size_t flow) {
  const std::lock_guard lock(mutex_);
  return flows_[flow].passage;
}

std::pair<DelayCounts, std::optional<Nanoseconds>> Emulator::TakeDelays(std::size_t flow) {
  const std::lock_guard lock(mutex_);
  return {std::exchange(flows_[flow].delays, {}), flows_[flow].last_delay};
}

Lateness Emulator::GetLateness() {
  const std::lock_guard lock(mutex_);
  Lateness lateness{.packets = delivered_, .most = most_late_};
  if (delivered_ == 0) return lateness;
  lateness.mean = static_cast<Nanoseconds>(lateness_sum_ / static_cast<double>(delivered_));
  const auto beyond = static_cast<std::uint64_t>(static_cast<double>(delivered_) * 1e-3);
  std::uint64_t count = 0;
  for (std::size_t unit = lateness_.size(); unit-- > 0;) {
    count += lateness_[unit];
    if (count > beyond) {
      lateness.p999 = std::min(most_late_, static_cast<Nanoseconds>(unit + 1) * kLatenessUnit);
      break;
    }
  }
  return lateness;
}

/// Everything that is due by `now`, in its order.
void Emulator::Advance(Nanoseconds now) {
  paths_.Advance(now);
  for (const Paths::Arrival& arrival : paths_.arrivals()) Deliver(arrival, now);
  paths_.arrivals().clear();
  for (const Paths::Packet& lost : paths_.lost()) {
    const auto slot = static_cast<std::uint32_t>(lost.packet.number);
    const Parsed& parsed = slots_[slot].parsed;
    if (parsed.is_data && parsed.payload > 0) ++flows_[parsed.flow].passage.lost_packets;
    free_slots_.push_back(slot);
  }
  paths_.lost().clear();
}

void Emulator::Deliver(const Paths::Arrival& arrival, Nanoseconds now) {
  const auto slot = static_cast<std::uint32_t>(arrival.packet.packet.number);
  Frame& frame = slots_[slot];
  if (arrival.packet.packet.ecn == Ecn::kCe) SetCe(frame.content.data());
  if (arrival.is_data && frame.parsed.payload > 0) {
    FlowState& flow = flows_[frame.parsed.flow];
    CountArrival(frame.parsed);
    CountDelay(flow, arrival.time - frame.entered);
    if (EcnOf(frame.content.data()) == Ecn::kCe) ++flow.passage.marked_packets;
  }
  const Nanoseconds late = now - arrival.time;
  ++delivered_;
  lateness_sum_ += static_cast<double>(late);
  most_late_ = std::max(most_late_, late);
  ++lateness_[std::min<std::size_t>(kLatenessUnits, static_cast<std::size_t>(late / kLatenessUnit))];
  const int device = arrival.is_data ? receiver_device_ : sender_device_;
  // A full socket buffer behind the device drops the packet, as a host does; nothing else can fail.
  [[maybe_unused]] const ssize_t written = write(device, frame.content.data(), frame.bytes);
  free_slots_.push_back(slot);
}

bool Emulator::AcceptData(Nanoseconds now) {
  if (!Read(sender_device_, true)) return false;
  Frame& frame = slots_[spare_];
  const Parsed& parsed = frame.parsed;
  if (parsed.flow == kNoFlow) return true;
  frame.entered = now;
  if (parsed.payload > 0) CountSent(parsed);
  const DataPacket packet{.number = spare_, .bytes = parsed.link_bytes, .ecn = EcnOf(frame.content.data())};
  paths_.Send(now, {.packet = packet, .flow = static_cast<std::uint32_t>(parsed.flow)});
  spare_ = TakeSlot();
  return true;
}

bool Emulator::AcceptAck(Nanoseconds now) {
  if (!Read(receiver_device_, false)) return false;
  const std::size_t flow = slots_[spare_].parsed.flow;
  if (flow == kNoFlow) return true;
  // For a link an acknowledgement has no payload, whatever options it carries, and it is not ECN-capable (RFC 3168).
  paths_.Return(now, {.packet = {.number = spare_}, .flow = static_cast<std::uint32_t>(flow)});
  spare_ = TakeSlot();
  return true;
}

bool Emulator::Read(int device, bool is_data) {
  Frame& frame = slots_[spare_];
  const ssize_t bytes = read(device, frame.content.data(), frame.content.size());
  if (bytes <= 0) return false;
  frame.bytes = static_cast<std::size_t>(bytes);
  frame.parsed = Parse({frame.content.data(), frame.bytes}, is_data);
  if (!frame.parsed.is_fragment) return true;
  if (frame.parsed.flow != kNoFlow) flows_[frame.parsed.flow].passage.is_fragmented = true;
  frame.parsed.flow = kNoFlow;
  return true;
}

Emulator::Parsed Emulator::Parse(std::span<const std::uint8_t> packet, bool is_data) const {
  constexpr std::size_t kUdpHeader = 8;
  constexpr std::size_t kTcpHeader = 20;
  Parsed parsed;
  const std::uint8_t* bytes = packet.data();
  if (packet.size() < kIpv4Header || bytes[0] >> 4U != 4) return parsed;
  const std::size_t ip_header = 4U * (bytes[0] & 15U);
  parsed.is_tcp = bytes[9] == IPPROTO_TCP;
  if (!parsed.is_tcp && bytes[9] != IPPROTO_UDP) return parsed;
  const std::uint16_t fragment = Get16(bytes + 6);
  parsed.is_fragment = (fragment & (kMoreFragments | kFragmentOffset)) != 0;
  if ((fragment & kFragmentOffset) != 0) return parsed;  // only the first one has the ports
  std::size_t header = ip_header + (parsed.is_tcp ? kTcpHeader : kUdpHeader);
  if (packet.size() < header) return parsed;
  const std::uint16_t from = Get16(bytes + ip_header);
  const std::uint16_t to = Get16(bytes + ip_header + 2);
  const auto flow_of = [this](std::uint16_t port, bool is_senders) {
    const std::size_t flow = static_cast<std::size_t>(port) - kFirstPort;
    return port >= kFirstPort && flow < flows_.size() && flows_[flow].is_from_server == is_senders ? flow : kNoFlow;
  };
  parsed.flow = flow_of(is_data ? to : from, false);
  parsed.other_port = is_data ? from : to;
  if (parsed.flow == kNoFlow) {
    parsed.flow = flow_of(is_data ? from : to, true);
    parsed.other_port = is_data ? to : from;
  }
  if (parsed.flow == kNoFlow) return parsed;
  parsed.is_data = is_data;
  if (parsed.is_tcp) {
    parsed.sequence = Get32(bytes + ip_header + 4);
    header = ip_header + 4U * (bytes[ip_header + 12] >> 4U);
  } else if (flows_[parsed.flow].is_command) {
    parsed.payload = static_cast<std::int32_t>(packet.size() - header);
    parsed.link_bytes = std::max(0, static_cast<std::int32_t>(packet.size()) - kHeaderBytes);
    return parsed;
  } else {
    const auto datagram = wire::Read(packet.subspan(header));
    header = datagram && datagram->kind == wire::Kind::kData ? header + wire::kDataHeaderBytes : packet.size();
  }
  if (header < packet.size()) parsed.payload = static_cast<std::int32_t>(packet.size() - header);
  parsed.link_bytes = parsed.payload;
  return parsed;
}

void Emulator::CountSent(const Parsed& parsed) {
  FlowState& state = flows_[parsed.flow];
  Passage& passage = state.passage;
  ++passage.sent_packets;
  passage.sent_bytes += parsed.payload;
  passage.is_tcp = parsed.is_tcp;
  if (!parsed.is_tcp) return;
  const std::uint32_t end = parsed.sequence + static_cast<std::uint32_t>(parsed.payload);
  std::optional<std::uint32_t>& sent_end = state.connections[parsed.other_port].sent_end;
  if (sent_end && IsBefore(parsed.sequence, *sent_end)) ++passage.retransmitted_packets;
  if (!sent_end || IsBefore(*sent_end, end)) sent_end = end;
}

void Emulator::CountDelay(FlowState& flow, Nanoseconds delay) {
  DelayCounts& counts = flow.delays;
  ++counts.packets;
  counts.sum += delay;
  counts.least = std::min(counts.least, delay);
  counts.most = std::max(counts.most, delay);
  if (flow.last_delay) counts.jitter_sum += std::abs(delay - *flow.last_delay);
  flow.last_delay = delay;
}

/// For TCP, the payload that its receiver expects next counts as in order.
void Emulator::CountArrival(const Parsed& parsed) {
  Passage& passage = flows_[parsed.flow].passage;
  ++passage.arrived_packets;
  passage.arrived_bytes += parsed.payload;
  if (!parsed.is_tcp) {
    passage.received_bytes += parsed.payload;
    return;
  }
  TcpState& flow = flows_[parsed.flow].connections[parsed.other_port];
  const std::uint32_t end = parsed.sequence + static_cast<std::uint32_t>(parsed.payload);
  if (!flow.has_sequence) {
    flow.has_sequence = true;
    flow.next_sequence = parsed.sequence;  // a first packet that was lost is not counted
  }
  if (parsed.sequence != flow.next_sequence) {
    if (IsBefore(flow.next_sequence, parsed.sequence)) flow.beyond[parsed.sequence] = end;
    return;
  }
  passage.inorder_bytes += parsed.payload;
  flow.next_sequence = end;
  for (auto next = flow.beyond.find(flow.next_sequence); next != flow.beyond.end();
       next = flow.beyond.find(flow.next_sequence)) {
    flow.next_sequence = next->second;
    flow.beyond.erase(next);
  }
  passage.received_bytes += flow.next_sequence - parsed.sequence;
}

std::uint32_t Emulator::TakeSlot() {
  if (free_slots_.empty()) {
    slots_.emplace_back().content.resize(frame_bytes_);
    return static_cast<std::uint32_t>(slots_.size() - 1);
  }
  const std::uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

}  // namespace bbrgym
