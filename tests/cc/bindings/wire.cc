// The wire format.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "envs/transport/siphash.h"
#include "envs/transport/token.h"
#include "envs/transport/wire.h"
#include "tests/cc/bindings/bind.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace bbrgym {
namespace {

using Ranges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

nb::bytes WriteBytes(const wire::Datagram& datagram) {
  const auto payload = static_cast<std::size_t>(std::max<std::int32_t>(datagram.bytes, 0));
  std::vector<std::uint8_t> buffer(wire::kMaxControlBytes + payload);
  const std::size_t size = wire::Write(datagram, buffer);
  return nb::bytes(reinterpret_cast<const char*>(buffer.data()), size);
}

std::optional<wire::Datagram> ReadBytes(const nb::bytes& bytes) {
  return wire::Read({reinterpret_cast<const std::uint8_t*>(bytes.c_str()), bytes.size()});
}

PeerAddress PeerOf(const nb::bytes& bytes) {
  PeerAddress peer{};
  std::copy_n(bytes.c_str(), std::min(bytes.size(), peer.size()), peer.begin());
  return peer;
}

}  // namespace

void BindWire(nb::module_& m) {
  m.def(
      "write_datagram",
      [](int kind, std::uint16_t connection, std::uint64_t time, const nb::bytes& token, std::uint32_t number,
         std::uint32_t segment, std::int32_t bytes, bool is_retransmission, const Ranges& ranges, Bytes marked,
         bool is_last, const std::vector<std::uint64_t>& totals) {
        wire::Datagram datagram{.kind = static_cast<wire::Kind>(kind),
                                .connection = connection,
                                .time = time,
                                .number = number,
                                .segment = segment,
                                .bytes = bytes,
                                .is_retransmission = is_retransmission,
                                .is_last = is_last};
        std::copy_n(token.c_str(), std::min(token.size(), datagram.token.size()), datagram.token.begin());
        datagram.ack.marked = marked;
        for (const auto& [low, high] : ranges) datagram.ack.ranges[datagram.ack.count++] = {low, high};
        if (totals.size() == 2) datagram.sent = {totals[0], totals[1]};
        if (totals.size() == 4) datagram.report = {totals[0], totals[1], totals[2], totals[3]};
        return WriteBytes(datagram);
      },
      "kind"_a, "connection"_a = 0, "time"_a = 0, "token"_a = nb::bytes(""), "number"_a = 0, "segment"_a = 0,
      "bytes"_a = 0, "is_retransmission"_a = false, "ranges"_a = Ranges{}, "marked"_a = 0, "is_last"_a = false,
      "totals"_a = std::vector<std::uint64_t>{}, "Return the bytes of a datagram; the payload of data is zeros.");
  m.def(
      "rewrite_datagram",
      [](const nb::bytes& bytes) -> std::optional<nb::bytes> {
        const auto datagram = ReadBytes(bytes);
        if (!datagram) return std::nullopt;
        return WriteBytes(*datagram);
      },
      "bytes"_a, "Read a datagram and write it again; None if it is none.");
  m.def("expand_number", &wire::Expand, "low"_a, "expected"_a,
        "Return the number with these low 32 bits that is closest to `expected`.");
  m.def(
      "siphash",
      [](std::uint64_t low, std::uint64_t high, const nb::bytes& message) {
        return SipHash({low, high}, {reinterpret_cast<const std::uint8_t*>(message.c_str()), message.size()});
      },
      "low"_a, "high"_a, "message"_a, "Return SipHash-2-4 of the message under a key of two words.");
  m.def(
      "make_token",
      [](std::uint64_t key, const nb::bytes& peer, Nanoseconds now) {
        const wire::Token token = MakeToken({key, key}, PeerOf(peer), now);
        return nb::bytes(token.data(), token.size());
      },
      "key"_a, "peer"_a, "now"_a, "Return a token for a peer (18 bytes of address and port).");
  m.def(
      "is_token_valid",
      [](const nb::bytes& bytes, std::uint64_t key, const nb::bytes& peer, Nanoseconds now) {
        wire::Token token{};
        std::copy_n(bytes.c_str(), std::min(bytes.size(), token.size()), token.begin());
        return IsTokenValid(token, {key, key}, PeerOf(peer), now);
      },
      "token"_a, "key"_a, "peer"_a, "now"_a, "Return whether the token was made with this key for this peer.");
}

}  // namespace bbrgym
