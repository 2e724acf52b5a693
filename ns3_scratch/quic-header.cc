#include "quic-header.h"

#include <algorithm>

namespace bbrgym
{

using namespace ns3;

namespace
{

constexpr uint32_t kRangeBytes = 8;
constexpr uint32_t kMarkedBytes = 8;
constexpr uint8_t kHasMarks = 0x80;

/// The lowest `bytes` bytes of a value, in network order.
void Write(Buffer::Iterator& at, uint64_t value, uint32_t bytes)
{
    for (uint32_t i = bytes; i-- > 0;)
    {
        at.WriteU8(static_cast<uint8_t>(value >> (8 * i)));
    }
}

uint64_t Read(Buffer::Iterator& at, uint32_t bytes)
{
    uint64_t value = 0;
    for (uint32_t i = 0; i < bytes; ++i)
    {
        value = value << 8 | at.ReadU8();
    }
    return value;
}

} // namespace

QuicHeader QuicHeader::Hello(Nanoseconds time)
{
    QuicHeader header;
    header.m_kind = Kind::kHello;
    header.m_segment = static_cast<uint64_t>(time);
    return header;
}

QuicHeader QuicHeader::Answer(const QuicHeader& hello)
{
    QuicHeader header = hello;
    header.m_kind = Kind::kAnswer;
    return header;
}

QuicHeader QuicHeader::Data(const DataPacket& data)
{
    QuicHeader header;
    header.m_kind = Kind::kData;
    header.m_number = data.number;
    header.m_segment = data.segment;
    return header;
}

QuicHeader QuicHeader::Ack(const AckPacket& ack)
{
    QuicHeader header;
    header.m_kind = Kind::kAck;
    header.m_ack = ack;
    return header;
}

TypeId QuicHeader::GetTypeId()
{
    static TypeId tid =
        TypeId("bbrgym::QuicHeader").SetParent<Header>().AddConstructor<QuicHeader>();
    return tid;
}

TypeId QuicHeader::GetInstanceTypeId() const
{
    return GetTypeId();
}

uint32_t QuicHeader::GetSerializedSize() const
{
    if (m_kind != Kind::kAck)
    {
        return kBytes;
    }
    return kBytes + (m_ack.count - 1) * kRangeBytes + (m_ack.marked > 0 ? kMarkedBytes : 0);
}

void QuicHeader::Serialize(Buffer::Iterator start) const
{
    const auto kind = static_cast<uint8_t>(m_kind);
    if (m_kind != Kind::kAck)
    {
        Write(start, kind, 1);
        Write(start, m_number, 5);
        Write(start, m_segment, 6);
        return;
    }
    const auto& ranges = m_ack.ranges;
    Write(start, kind | (m_ack.count - 1) << 4 | (m_ack.marked > 0 ? kHasMarks : 0U), 1);
    Write(start, ranges[0].high, 5);
    Write(start, ranges[0].high - ranges[0].low, 6);
    for (uint32_t i = 1; i < m_ack.count; ++i)
    {
        Write(start, ranges[i - 1].low - ranges[i].high, 4);
        // The older part of a longer range was acknowledged long ago.
        Write(start, std::min<uint64_t>(ranges[i].high - ranges[i].low, UINT32_MAX), 4);
    }
    if (m_ack.marked > 0)
    {
        Write(start, static_cast<uint64_t>(m_ack.marked), kMarkedBytes);
    }
}

uint32_t QuicHeader::Deserialize(Buffer::Iterator start)
{
    const auto first = static_cast<uint8_t>(Read(start, 1));
    m_kind = static_cast<Kind>(first & 0xfU);
    m_number = Read(start, 5);
    m_segment = Read(start, 6);
    if (m_kind == Kind::kAck)
    {
        m_ack.count = 1U + (first >> 4U & 7U);
        m_ack.ranges[0] = {.low = m_number - m_segment, .high = m_number};
        for (uint32_t i = 1; i < m_ack.count; ++i)
        {
            PacketRange& range = m_ack.ranges[i];
            range.high = m_ack.ranges[i - 1].low - Read(start, 4);
            range.low = range.high - Read(start, 4);
        }
        m_ack.marked = (first & kHasMarks) != 0 ? static_cast<Bytes>(Read(start, kMarkedBytes)) : 0;
    }
    return GetSerializedSize();
}

void QuicHeader::Print(std::ostream& os) const
{
    os << "kind " << static_cast<int>(m_kind) << " number " << m_number << " segment " << m_segment;
}

} // namespace bbrgym
