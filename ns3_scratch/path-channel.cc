#include "path-channel.h"

#include "ns3/simulator.h"

#include <utility>

namespace bbrgym
{

using namespace ns3;

TypeId PathChannel::GetTypeId()
{
    static TypeId tid = TypeId("bbrgym::PathChannel").SetParent<PointToPointChannel>();
    return tid;
}

void PathChannel::Install(Ptr<PointToPointNetDevice> source,
                          Ptr<PointToPointNetDevice> other,
                          Arrival arrival)
{
    const auto channel = CreateObject<PathChannel>(source, std::move(arrival));
    TimeValue delay;
    source->GetChannel()->GetAttribute("Delay", delay);
    channel->SetAttribute("Delay", delay);
    source->Attach(channel);
    other->Attach(channel);
}

PathChannel::PathChannel(Ptr<PointToPointNetDevice> source, Arrival arrival)
    : m_source(std::move(source)), m_arrival(std::move(arrival))
{
}

bool PathChannel::TransmitStart(Ptr<const Packet> packet,
                                Ptr<PointToPointNetDevice> source,
                                Time txTime)
{
    if (source != m_source)
    {
        return PointToPointChannel::TransmitStart(packet, source, txTime);
    }
    const Nanoseconds arrival = m_arrival(*packet, (Simulator::Now() + txTime).GetNanoSeconds());
    if (arrival == kNever)
    {
        return true;
    }
    // The channel adds its delay to the transmission time.
    return PointToPointChannel::TransmitStart(
        packet, source, NanoSeconds(arrival) - Simulator::Now() - GetDelay());
}

void PathChannel::DoDispose()
{
    m_source = nullptr;
    PointToPointChannel::DoDispose();
}

} // namespace bbrgym
