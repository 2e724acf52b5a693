#include "envs/transport/wire.h"

#include <algorithm>

namespace bbrgym::wire {

namespace {

constexpr std::uint8_t kVersion = 3;
constexpr std::size_t kPrefixBytes = 4;
constexpr std::size_t kHelloBytes = 28;
constexpr std::size_t kWelcomeBytes = 12;
constexpr std::size_t kAckHeaderBytes = 16;
constexpr std::size_t kRangeBytes = 16;
constexpr std::size_t kEndBytes = 36;
constexpr std::size_t kReportBytes = 36;
// The only flag of data, and of end.
constexpr std::uint8_t kRetransmission = 1;
constexpr std::uint8_t kLast = 1;

template <typename Value>
Value Get(std::span<const std::uint8_t> bytes, std::size_t at) {
  Value value = 0;
  for (std::size_t i = 0; i < sizeof(Value); ++i) value = static_cast<Value>(value << 8U | bytes[at + i]);
  return value;
}

template <typename Value>
void Put(std::span<std::uint8_t> bytes, std::size_t at, Value value) {
  for (std::size_t i = sizeof(Value); i-- > 0; value = static_cast<Value>(value >> 8U)) {
    bytes[at + i] = static_cast<std::uint8_t>(value & 0xFFU);
  }
}

/// Ranges must be in order, newest first, and apart: two that touch would be one.
bool ReadAck(std::span<const std::uint8_t> bytes, AckPacket& ack) {
  ack.count = bytes[4];
  if (ack.count < 1 || ack.count > AckPacket::kMaxRanges) return false;
  if (bytes.size() != kAckHeaderBytes + kRangeBytes * ack.count) return false;
  if (bytes[5] != 0 || bytes[6] != 0 || bytes[7] != 0) return false;
  const auto marked = Get<std::uint64_t>(bytes, 8);
  if (marked > INT64_MAX) return false;
  ack.marked = static_cast<Bytes>(marked);
  for (std::uint32_t i = 0; i < ack.count; ++i) {
    PacketRange& range = ack.ranges[i];
    range.low = Get<std::uint64_t>(bytes, kAckHeaderBytes + kRangeBytes * i);
    range.high = Get<std::uint64_t>(bytes, kAckHeaderBytes + kRangeBytes * i + 8);
    if (range.low > range.high || range.high == UINT64_MAX) return false;
    if (i > 0 && range.high + 1 >= ack.ranges[i - 1].low) return false;
  }
  return true;
}

}  // namespace

std::optional<Datagram> Read(std::span<const std::uint8_t> bytes) {
  if (bytes.size() < kPrefixBytes || bytes[0] >> 4U != kVersion) return std::nullopt;
  Datagram read{.kind = static_cast<Kind>(bytes[0] & 15U), .connection = Get<std::uint16_t>(bytes, 2)};
  const std::uint8_t flags = bytes[1];
  const bool may_have_flag = read.kind == Kind::kData || read.kind == Kind::kEnd;
  if (flags > 1 || (flags == 1 && !may_have_flag)) return std::nullopt;
  switch (read.kind) {
    case Kind::kHello:
    case Kind::kRetry:
      if (bytes.size() != kHelloBytes) return std::nullopt;
      read.time = Get<std::uint64_t>(bytes, 4);
      std::copy_n(bytes.begin() + 12, read.token.size(), read.token.begin());
      return read;
    case Kind::kWelcome:
    case Kind::kBusy:
      if (bytes.size() != kWelcomeBytes) return std::nullopt;
      read.time = Get<std::uint64_t>(bytes, 4);
      return read;
    case Kind::kData:
      if (bytes.size() <= kDataHeaderBytes) return std::nullopt;
      read.number = Get<std::uint32_t>(bytes, 4);
      read.segment = Get<std::uint32_t>(bytes, 8);
      read.bytes = static_cast<std::int32_t>(bytes.size() - kDataHeaderBytes);
      read.is_retransmission = flags == kRetransmission;
      return read;
    case Kind::kAck:
      if (bytes.size() < kAckHeaderBytes || !ReadAck(bytes, read.ack)) return std::nullopt;
      return read;
    case Kind::kEnd:
      if (bytes.size() != kEndBytes) return std::nullopt;
      read.is_last = flags == kLast;
      std::copy_n(bytes.begin() + 4, read.token.size(), read.token.begin());
      read.sent = {.packets = Get<std::uint64_t>(bytes, 20), .bytes = Get<std::uint64_t>(bytes, 28)};
      return read;
    case Kind::kReport:
      if (bytes.size() != kReportBytes) return std::nullopt;
      read.report = {.received_bytes = Get<std::uint64_t>(bytes, 4),
                     .arrived_bytes = Get<std::uint64_t>(bytes, 12),
                     .arrived_packets = Get<std::uint64_t>(bytes, 20),
                     .reordered_packets = Get<std::uint64_t>(bytes, 28)};
      return read;
  }
  return std::nullopt;
}

std::size_t Write(const Datagram& datagram, std::span<std::uint8_t> buffer) {
  buffer[0] = static_cast<std::uint8_t>(kVersion << 4U | static_cast<std::uint8_t>(datagram.kind));
  buffer[1] = 0;
  Put(buffer, 2, datagram.connection);
  switch (datagram.kind) {
    case Kind::kHello:
    case Kind::kRetry:
      Put(buffer, 4, datagram.time);
      std::copy(datagram.token.begin(), datagram.token.end(), buffer.begin() + 12);
      return kHelloBytes;
    case Kind::kWelcome:
    case Kind::kBusy:
      Put(buffer, 4, datagram.time);
      return kWelcomeBytes;
    case Kind::kData:
      if (datagram.is_retransmission) buffer[1] = kRetransmission;
      Put(buffer, 4, datagram.number);
      Put(buffer, 8, datagram.segment);
      return kDataHeaderBytes + static_cast<std::size_t>(datagram.bytes);
    case Kind::kAck:
      Put(buffer, 4, static_cast<std::uint32_t>(datagram.ack.count << 24U));
      Put(buffer, 8, static_cast<std::uint64_t>(datagram.ack.marked));
      for (std::uint32_t i = 0; i < datagram.ack.count; ++i) {
        Put(buffer, kAckHeaderBytes + kRangeBytes * i, datagram.ack.ranges[i].low);
        Put(buffer, kAckHeaderBytes + kRangeBytes * i + 8, datagram.ack.ranges[i].high);
      }
      return kAckHeaderBytes + kRangeBytes * datagram.ack.count;
    case Kind::kEnd:
      if (datagram.is_last) buffer[1] = kLast;
      std::copy(datagram.token.begin(), datagram.token.end(), buffer.begin() + 4);
      Put(buffer, 20, datagram.sent.packets);
      Put(buffer, 28, datagram.sent.bytes);
      return kEndBytes;
    case Kind::kReport:
      Put(buffer, 4, datagram.report.received_bytes);
      Put(buffer, 12, datagram.report.arrived_bytes);
      Put(buffer, 20, datagram.report.arrived_packets);
      Put(buffer, 28, datagram.report.reordered_packets);
      return kReportBytes;
  }
  return kPrefixBytes;
}

std::uint64_t Expand(std::uint32_t low, std::uint64_t expected) {
  constexpr std::uint64_t kWindow = std::uint64_t{1} << 32U;
  const std::uint64_t candidate = (expected & ~(kWindow - 1)) | low;
  const bool is_above = candidate > expected;
  const std::uint64_t distance = is_above ? candidate - expected : expected - candidate;
  if (!is_above && distance >= kWindow / 2 && candidate <= UINT64_MAX - kWindow) return candidate + kWindow;
  if (is_above && distance > kWindow / 2 && candidate >= kWindow) return candidate - kWindow;
  return candidate;
}

}  // namespace bbrgym::wire
