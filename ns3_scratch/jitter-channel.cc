#include "jitter-channel.h"

#include "ns3/simulator.h"

#include <utility>

namespace bbrgym
{

using namespace ns3;

TypeId JitterChannel::GetTypeId()
{
    static TypeId tid = TypeId("bbrgym::JitterChannel").SetParent<PointToPointChannel>();
    return tid;
}

JitterChannel::JitterChannel(Ptr<PointToPointNetDevice> source, AckJitter jitter)
    : m_source(std::move(source)), m_jitter(jitter)
{
}

bool JitterChannel::TransmitStart(Ptr<const Packet> packet,
                                  Ptr<PointToPointNetDevice> source,
                                  Time txTime)
{
    if (source != m_source)
    {
        return PointToPointChannel::TransmitStart(packet, source, txTime);
    }
    const Time end = Simulator::Now() + txTime;
    const Nanoseconds arrival = m_jitter.Arrival(end.GetNanoSeconds(), GetDelay().GetNanoSeconds());
    // The channel adds its delay to the transmission time.
    return PointToPointChannel::TransmitStart(
        packet, source, NanoSeconds(arrival) - Simulator::Now() - GetDelay());
}

void JitterChannel::DoDispose()
{
    m_source = nullptr;
    PointToPointChannel::DoDispose();
}

} // namespace bbrgym
