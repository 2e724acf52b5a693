#include "controller-congestion-ops.h"

#include "ns3/simulator.h"
#include "ns3/tcp-socket-state.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace bbrgym
{

using namespace ns3;

TypeId ControllerCongestionOps::GetTypeId()
{
    static TypeId tid = TypeId("bbrgym::ControllerCongestionOps").SetParent<TcpCongestionOps>();
    return tid;
}

ControllerCongestionOps::ControllerCongestionOps(Ptr<LinuxRateOps> rateOps, Ptr<TcpTxBuffer> buffer)
    : m_rateOps(rateOps), m_buffer(buffer)
{
}

void ControllerCongestionOps::Start(std::unique_ptr<Controller> controller, Ptr<TcpSocketState> tcb)
{
    m_controller = std::move(controller);
    Apply(tcb);
}

std::string ControllerCongestionOps::GetName() const
{
    return "ControllerCongestionOps";
}

bool ControllerCongestionOps::HasCongControl() const
{
    return true;
}

void ControllerCongestionOps::CongControl(Ptr<TcpSocketState> tcb,
                                          const TcpRateOps::TcpRateConnection& /* rc */,
                                          const TcpRateOps::TcpRateSample& /* rs */)
{
    if (!m_controller)
    {
        return;
    }
    AckEvent ack = m_rateOps->GetAckEvent();
    if (ack.bytes_acked > 0 || ack.bytes_lost > 0)
    {
        ack.in_flight = m_buffer->BytesInFlight();
        ack.is_cwnd_limited = m_windowUsage.OnAck(
            tcb->m_isCwndLimited, ack.prior_in_flight, ack.delivered - ack.bytes_acked);
        m_controller->OnAck(ack);
    }
    Apply(tcb);
}

void ControllerCongestionOps::CongestionStateSet(Ptr<TcpSocketState> tcb,
                                                 const TcpSocketState::TcpCongState_t newState)
{
    if (!m_controller)
    {
        return;
    }
    const Recovery state = newState == TcpSocketState::CA_RECOVERY ? Recovery::kRecovery
                           : newState == TcpSocketState::CA_LOSS   ? Recovery::kLoss
                                                                   : Recovery::kOpen;
    m_controller->OnRecovery(state, Simulator::Now().GetNanoSeconds(), m_buffer->BytesInFlight());
    Apply(tcb);
}

void ControllerCongestionOps::CwndEvent(Ptr<TcpSocketState> tcb,
                                        const TcpSocketState::TcpCAEvent_t event)
{
    // Nothing is in flight after a timeout or before the first flight either. Those are no
    // restarts, because the application had data to send.
    const TcpRateOps::TcpRateConnection& connection = m_rateOps->GetConnectionRate();
    if (m_controller && event == TcpSocketState::CA_EVENT_TX_START &&
        tcb->m_congState == TcpSocketState::CA_OPEN && connection.m_delivered > 0 &&
        connection.m_appLimited != 0)
    {
        m_controller->OnRestart(Simulator::Now().GetNanoSeconds());
        Apply(tcb);
    }
}

uint32_t ControllerCongestionOps::GetSsThresh(Ptr<const TcpSocketState> tcb,
                                              uint32_t /* bytesInFlight */)
{
    // The socket takes this as its window on leaving recovery, just before CongControl sets the
    // right one.
    return tcb->m_cWnd;
}

void ControllerCongestionOps::IncreaseWindow(Ptr<TcpSocketState> /* tcb */,
                                             uint32_t /* segmentsAcked */)
{
    // CongControl sets the window.
}

Ptr<TcpCongestionOps> ControllerCongestionOps::Fork()
{
    NS_FATAL_ERROR("a sender's socket is never forked");
    return nullptr;
}

void ControllerCongestionOps::Apply(Ptr<TcpSocketState> tcb)
{
    const Decision decision = m_controller->decision();
    constexpr Bytes kMaxCwnd = std::numeric_limits<int32_t>::max();
    tcb->m_cWnd = static_cast<uint32_t>(std::clamp<Bytes>(decision.cwnd, 1, kMaxCwnd));
    tcb->m_cWndInfl = tcb->m_cWnd;
    // Within a burst, SenderSocket clears the socket's flag.
    if (decision.is_paced != m_isPaced)
    {
        tcb->m_pacing = m_isPaced = decision.is_paced;
    }
    m_sendQuantum = decision.send_quantum;
    m_isBurstWhole = decision.is_burst_whole;
    tcb->m_pacingRate =
        DataRate(static_cast<uint64_t>(std::max<BitsPerSecond>(decision.pacing_rate, 1)));
    if (decision.is_app_limited)
    {
        m_rateOps->MarkAppLimited(m_buffer->BytesInFlight());
    }
}

} // namespace bbrgym
