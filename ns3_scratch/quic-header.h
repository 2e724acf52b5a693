#pragma once

#include "envs/model/packet.h"

#include "ns3/header.h"

#include <cstdint>
#include <ostream>

namespace bbrgym
{

/// The header of our transport's packets over UDP. It fills the difference between TCP's and UDP's
/// headers, so that packets are as long as a Scenario says, and acknowledgements about as long as
/// TCP's with SACK options:
///
///     kind 1 | number 5    | segment 6       hello, its answer, data
///     kind 1 | highest 5   | length 6        acknowledgement, newest range first
///            { gap 4 | length 4 }            each further range
///            marked 8                        if anything came with a CE mark
///
/// In an acknowledgement's kind, bits 4 to 6 hold the number of further ranges, and bit 7 says
/// whether there are marks. Data follows the header.
class QuicHeader : public ns3::Header
{
  public:
    enum class Kind : uint8_t
    {
        kHello,  ///< starts the handshake; its segment is the time
        kAnswer, ///< ends the handshake; repeats the time of the hello
        kData,
        kAck,
    };

    /// TCP's header (20) less UDP's (8).
    static constexpr uint32_t kBytes = 12;

    /// An empty header, to be read into.
    QuicHeader() = default;

    static QuicHeader Hello(Nanoseconds time);
    static QuicHeader Answer(const QuicHeader& hello);
    static QuicHeader Data(const DataPacket& data);
    static QuicHeader Ack(const AckPacket& ack);

    Kind GetKind() const
    {
        return m_kind;
    }

    /// When the hello was sent.
    Nanoseconds GetTime() const
    {
        return static_cast<Nanoseconds>(m_segment);
    }

    PacketNumber GetNumber() const
    {
        return m_number;
    }

    uint64_t GetSegment() const
    {
        return m_segment;
    }

    const AckPacket& GetAck() const
    {
        return m_ack;
    }

    static ns3::TypeId GetTypeId();
    ns3::TypeId GetInstanceTypeId() const override;
    uint32_t GetSerializedSize() const override;
    void Serialize(ns3::Buffer::Iterator start) const override;
    uint32_t Deserialize(ns3::Buffer::Iterator start) override;
    void Print(std::ostream& os) const override;

  private:
    Kind m_kind = Kind::kHello;
    PacketNumber m_number = 0;
    uint64_t m_segment = 0;
    AckPacket m_ack;
};

} // namespace bbrgym
