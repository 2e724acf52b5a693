#include "receiver-socket.h"

#include "ns3/tcp-header.h"

namespace bbrgym
{

using namespace ns3;

TypeId ReceiverSocket::GetTypeId()
{
    static TypeId tid = TypeId("bbrgym::ReceiverSocket").SetParent<TcpSocketBase>();
    return tid;
}

void ReceiverSocket::SetArrivalCallback(Callback<void, uint32_t, bool> onArrival)
{
    m_onArrival = onArrival;
}

void ReceiverSocket::DoForwardUp(Ptr<Packet> packet, const Address& from, const Address& to)
{
    TcpHeader header;
    const uint32_t bytes = packet->GetSize() - packet->PeekHeader(header);
    if (bytes > 0)
    {
        const SequenceNumber32 next = GetRxBuffer()->NextRxSequence();
        const SequenceNumber32 begin = header.GetSequenceNumber();
        m_onArrival(bytes, begin <= next && begin + bytes > next);
    }
    TcpSocketBase::DoForwardUp(packet, from, to);
}

Ptr<TcpSocketBase> ReceiverSocket::Fork()
{
    return CopyObject<ReceiverSocket>(this);
}

} // namespace bbrgym
