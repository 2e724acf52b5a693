#include "link-monitor.h"

#include "ns3/callback.h"
#include "ns3/data-rate.h"
#include "ns3/queue.h"
#include "ns3/simulator.h"

#include <algorithm>
#include <utility>

namespace bbrgym
{

using namespace ns3;

LinkMonitor::LinkMonitor(Ptr<QueueDisc> queueDisc,
                         Ptr<PointToPointNetDevice> device,
                         Ptr<PointToPointNetDevice> farDevice,
                         double framing)
    : m_device(device), m_framing(framing)
{
    // ns-3 reports a change just before it happens: a query of the queue would return the old
    // value.
    const Callback<void, uint32_t, uint32_t> onPackets([this](uint32_t before, uint32_t after) {
        Integrate();
        m_packets += after - before;
    });
    const Callback<void, uint32_t, uint32_t> onBytes([this](uint32_t before, uint32_t after) {
        Integrate();
        m_bytes += after - before;
    });
    queueDisc->TraceConnectWithoutContext("PacketsInQueue", onPackets);
    // Packets in the device are framed already; those in the queue discipline get their frame
    // there.
    queueDisc->TraceConnectWithoutContext(
        "PacketsInQueue",
        Callback<void, uint32_t, uint32_t>(
            [this](uint32_t before, uint32_t after) { m_bytes += kPppBytes * (after - before); }));
    queueDisc->TraceConnectWithoutContext("BytesInQueue", onBytes);
    device->GetQueue()->TraceConnectWithoutContext("PacketsInQueue", onPackets);
    device->GetQueue()->TraceConnectWithoutContext("BytesInQueue", onBytes);
    queueDisc->TraceConnectWithoutContext(
        "Drop",
        Callback<void, Ptr<const QueueDiscItem>>([this](Ptr<const QueueDiscItem>) { ++m_drops; }));
    queueDisc->TraceConnectWithoutContext(
        "Mark",
        Callback<void, Ptr<const QueueDiscItem>, const char*>(
            [this](Ptr<const QueueDiscItem>, const char*) { ++m_marks; }));
    for (const auto& [trace, isSending] : {std::pair{"PhyTxBegin", true}, {"PhyTxEnd", false}})
    {
        device->TraceConnectWithoutContext(
            trace,
            Callback<void, Ptr<const Packet>>([this, isSending = isSending](Ptr<const Packet>) {
                Integrate();
                m_isSending = isSending;
                if (isSending && m_sendingRateMbps != m_rateMbps)
                {
                    m_earlierSent += m_sendingRateMbps * m_sendingSeconds;
                    m_sendingSeconds = 0.0;
                    m_sendingRateMbps = m_rateMbps;
                }
            }));
    }
    farDevice->TraceConnectWithoutContext(
        "PhyRxDrop",
        Callback<void, Ptr<const Packet>>([this](Ptr<const Packet>) { ++m_randomLosses; }));
}

void LinkMonitor::SetRate(double rateMbps)
{
    Integrate();
    m_earlierRates += m_rateMbps * (Simulator::Now() - m_rateSince).GetSeconds();
    m_rateSince = Simulator::Now();
    m_rateMbps = rateMbps;
    m_device->SetDataRate(DataRate(static_cast<uint64_t>(rateMbps * m_framing * 1e6)));
}

void LinkMonitor::CountDrop()
{
    ++m_drops;
}

double LinkMonitor::MeanRateMbps() const
{
    if (m_rateSince == m_stepStart)
    {
        return m_rateMbps;
    }
    const Time now = Simulator::Now();
    const double sum = m_earlierRates + m_rateMbps * (now - m_rateSince).GetSeconds();
    return sum / (now - m_stepStart).GetSeconds();
}

double LinkMonitor::Utilisation() const
{
    const double seconds = (Simulator::Now() - m_stepStart).GetSeconds();
    if (seconds <= 0.0)
    {
        return 0.0;
    }
    if (m_rateSince == m_stepStart && m_earlierSent == 0.0 && m_sendingRateMbps == m_rateMbps)
    {
        return m_sendingSeconds / seconds;
    }
    const double sent = m_earlierSent + m_sendingRateMbps * m_sendingSeconds;
    const double capacity = MeanRateMbps() * seconds;
    return capacity > 0.0 ? std::min(sent / capacity, 1.0) : 0.0;
}

LinkRow LinkMonitor::GetRow()
{
    Integrate();
    const double seconds = (Simulator::Now() - m_stepStart).GetSeconds();
    const auto per = [](double sum, double over) { return over > 0.0 ? sum / over : 0.0; };
    return {
        .rate_mbps = MeanRateMbps(),
        .utilisation = Utilisation(),
        .queue_mean_packets = per(m_packetSeconds, seconds),
        .queue_max_packets = static_cast<double>(m_maxPackets),
        .queue_mean_ms = per(m_delaySeconds, seconds) * 1e3,
        .queue_max_ms = m_maxMs,
        .drops = static_cast<double>(m_drops),
        .marks = static_cast<double>(m_marks),
        .random_losses = static_cast<double>(m_randomLosses),
        .further = EmptyRow<FurtherLinkRow>(),
    };
}

void LinkMonitor::StartStep()
{
    Integrate();
    m_stepStart = m_rateSince = Simulator::Now();
    m_earlierRates = 0.0;
    m_packetSeconds = m_delaySeconds = m_sendingSeconds = m_earlierSent = m_maxMs = 0.0;
    m_maxPackets = 0;
    m_drops = m_marks = m_randomLosses = 0;
}

void LinkMonitor::Integrate()
{
    const double seconds = (Simulator::Now() - m_lastChange).GetSeconds();
    m_lastChange = Simulator::Now();
    if (seconds <= 0.0 || m_rateMbps <= 0.0)
    {
        return;
    }
    const double bytesPerSecond = m_rateMbps * m_framing * 1e6 / 8.0;
    m_packetSeconds += seconds * m_packets;
    m_delaySeconds += seconds * m_bytes / bytesPerSecond;
    m_sendingSeconds += m_isSending ? seconds : 0.0;
    // Count only lengths that last: a packet passes through both queues even when the link is idle.
    m_maxPackets = std::max(m_maxPackets, m_packets);
    m_maxMs = std::max(m_maxMs, m_bytes / bytesPerSecond * 1e3);
}

} // namespace bbrgym
