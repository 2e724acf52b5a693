#include "flow.h"

#include "envs/transport/connection.h"

#include "ns3/simulator.h"

#include <utility>

namespace bbrgym
{

using namespace ns3;

FlowRun::FlowRun(const Scenario& scenario,
                 std::size_t index,
                 uint64_t seed,
                 std::function<void()> onComplete)
    : m_flow(scenario.flows[index]), m_packetBytes(static_cast<uint32_t>(scenario.packet_bytes)),
      m_seed(seed), m_onComplete(std::move(onComplete)),
      m_delivery(m_flow.size_bytes, FromSeconds(m_flow.start_s))
{
}

void FlowRun::Schedule()
{
    Simulator::Schedule(Seconds(m_flow.start_s), &FlowRun::Begin, this);
    if (m_flow.stop_s)
    {
        Simulator::Schedule(Seconds(*m_flow.stop_s), &FlowRun::End, this);
    }
}

void FlowRun::SetGains(double cwndGain, double pacingGain)
{
    m_gains = {.cwnd = cwndGain, .pacing = pacingGain};
    if (Controller* controller = GetController())
    {
        controller->Steer(cwndGain, pacingGain);
    }
}

Connection FlowRun::GetConnection(Nanoseconds rtt) const
{
    return MakeConnection(m_flow, m_packetBytes, rtt, m_seed);
}

std::optional<AppSource> FlowRun::OpenSource(const Connection& connection)
{
    std::optional<AppSource> source =
        MakeAppSource(m_flow, connection, Simulator::Now().GetNanoSeconds());
    if (source)
    {
        m_delivery.Expect(*source, connection.packet_bytes);
    }
    return source;
}

void FlowRun::OnReceived(Bytes bytes)
{
    if (bytes < m_delivery.due())
    {
        return;
    }
    m_delivery.OnReceived(Simulator::Now().GetNanoSeconds(), bytes);
    if (IsComplete())
    {
        End();
        m_onComplete();
    }
}

FlowStep FlowRun::GetStep(Time stepStart, double seconds) const
{
    const Span flow{Seconds(m_flow.start_s).GetNanoSeconds(), m_end.GetNanoSeconds()};
    const Span step{stepStart.GetNanoSeconds(), Simulator::Now().GetNanoSeconds()};
    return {
        .seconds = seconds,
        .active_share = m_hasBegun ? ActiveShare(flow, step) : 0.0,
        .packet_bytes = m_packetBytes,
        .is_open = m_hasBegun && !HasEnded(),
        .before = m_before,
    };
}

void FlowRun::Begin()
{
    m_hasBegun = true;
    Connect();
}

void FlowRun::End()
{
    if (!HasEnded())
    {
        m_end = Simulator::Now();
        Silence();
    }
}

} // namespace bbrgym
