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

}  // namespace

void BindWire(nb::module_& m) {
  m.def(
      "write_datagram",
      [](int kind, std::uint16_t connection, std::uint64_t time, const nb::bytes& token, std::uint32_t number,
         std::uint32_t segment, std::int32_t bytes, bool is_retransmission, const Ranges& ranges) {
        wire::Datagram datagram{.kind = static_cast<wire::Kind>(kind),
                                .connection = connection,
                                .time = time,
                                .number = number,
                                .segment = segment,
                                .bytes = bytes,
                                .is_retransmission = is_retransmission};
        std::copy_n(token.c_str(), std::min(token.size(), datagram.token.size()), datagram.token.begin());
        for (const auto& [low, high] : ranges) datagram.ack.ranges[datagram.ack.count++] = {low, high};
        return WriteBytes(datagram);
      },
      "kind"_a, "connection"_a = 0, "time"_a = 0, "token"_a = nb::bytes(""), "number"_a = 0, "segment"_a = 0,
      "bytes"_a = 0, "is_retransmission"_a = false, "ranges"_a = Ranges{},
      "Return the bytes of a datagram; the payload of data is zeros.");
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
}

}  // namespace bbrgym
