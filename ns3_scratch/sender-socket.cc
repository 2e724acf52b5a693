#include "sender-socket.h"

#include "envs/transport/held_burst.h"

#include "ns3/callback.h"
#include "ns3/rtt-estimator.h"
#include "ns3/simulator.h"
#include "ns3/tcp-rate-ops.h"

#include <algorithm>

namespace bbrgym
{

using namespace ns3;

TypeId SenderSocket::GetTypeId()
{
    static TypeId tid =
        TypeId("bbrgym::SenderSocket").SetParent<TcpSocketBase>().AddConstructor<SenderSocket>();
    return tid;
}

void SenderSocket::SetRecorder(FlowRecorder* recorder)
{
    m_recorder = recorder;
    m_recorder->SetBuffer(m_txBuffer);
    // The head of the buffer moves after the SACKs of an ACK have marked losses and before its
    // cumulative part repairs some.
    m_txBuffer->TraceConnectWithoutContext(
        "UnackSequence",
        Callback<void, SequenceNumber32, SequenceNumber32>(
            [recorder](SequenceNumber32, SequenceNumber32) { recorder->ObserveLost(); }));
}

void SenderSocket::SetRateOps(Ptr<TcpRateOps> rateOps)
{
    m_rateOps = rateOps;
}

Ptr<TcpSocketState> SenderSocket::GetState() const
{
    return m_tcb;
}

void SenderSocket::SetHasMoreData(bool hasMore)
{
    m_hasMoreData = hasMore;
}

void SenderSocket::CheckAppLimited()
{
    m_rateOps->CalculateAppLimited(m_tcb->m_cWnd,
                                   m_tcb->m_bytesInFlight,
                                   m_tcb->m_segmentSize,
                                   m_txBuffer->TailSequence(),
                                   m_tcb->m_nextTxSequence,
                                   m_txBuffer->GetLost(),
                                   m_txBuffer->GetRetransmitsCount());
}

void SenderSocket::Silence()
{
    m_isSilent = true;
    CancelAllTimers();
    m_pacingTimer.Cancel();
}

void SenderSocket::SetPace(ControllerCongestionOps* pace)
{
    m_pace = pace;
}

uint32_t SenderSocket::SendDataPacket(SequenceNumber32 seq, uint32_t maxSize, bool withAck)
{
    if (m_pace == nullptr || !m_pace->IsPaced())
    {
        return TcpSocketBase::SendDataPacket(seq, maxSize, withAck);
    }
    if (!m_pacingTimer.IsRunning())
    {
        m_burst = 0;
    }
    // Without the flag, the socket neither sets the timer for this packet nor waits for it before
    // the next.
    m_tcb->m_pacing = false;
    const uint32_t sent = TcpSocketBase::SendDataPacket(seq, maxSize, withAck);
    m_burst += sent;
    m_pacingTimer.Cancel();
    const Time pause =
        m_tcb->m_pacingRate.Get().CalculateBytesTxTime(static_cast<uint32_t>(m_burst));
    m_pacingTimer.Schedule(pause);
    m_mayLeave = (Simulator::Now() + pause).GetNanoSeconds();
    m_tcb->m_pacing = m_burst + m_tcb->m_segmentSize > m_pace->GetSendQuantum();
    return sent;
}

uint32_t SenderSocket::AvailableWindow() const
{
    if (m_isSilent)
    {
        return 0;
    }
    const uint32_t available = TcpSocketBase::AvailableWindow();
    const uint32_t segment = m_tcb->m_segmentSize;
    if (m_pace != nullptr && m_pace->IsPaced() && available < segment)
    {
        // The window ends the burst; pacing must first account for what was sent.
        m_tcb->m_pacing = true;
    }
    if (available >= segment && IsNextBurstHeld())
    {
        m_tcb->m_pacing = true;
        return 0;
    }
    const uint32_t inFlight = m_tcb->m_bytesInFlight; // AvailableWindow has just updated it
    if (m_tcb->m_cWnd >= inFlight + segment && m_state == ESTABLISHED)
    {
        // The congestion window allows a packet; check whether the buffers do.
        const uint32_t outstanding = UnAckDataCount();
        const bool isReceiverFull = GetRWnd() < outstanding + segment;
        const bool isSenderEmpty = m_hasMoreData && m_txBuffer->Size() < outstanding + segment;
        const bool hasRetransmission = m_txBuffer->GetLost() > m_txBuffer->GetRetransmitsCount();
        if ((isReceiverFull || isSenderEmpty) && !hasRetransmission)
        {
            m_recorder->OnBufferLimited();
        }
    }
    return available;
}

/// Returns whether the next burst waits for an ACK that gives it room in the window, as in Sender.
bool SenderSocket::IsNextBurstHeld() const
{
    if (m_pace == nullptr || !m_pace->IsPaced() || !m_pace->IsBurstWhole() ||
        m_pacingTimer.IsRunning() || m_tcb->m_congState >= TcpSocketState::CA_RECOVERY ||
        m_txBuffer->GetLost() > m_txBuffer->GetRetransmitsCount() || m_history.empty())
    {
        return false;
    }
    const uint32_t written = m_txBuffer->SizeFromSequence(m_tcb->m_nextTxSequence);
    const uint32_t cwnd = m_tcb->m_cWnd;
    return IsBurstHeld({.room = Bytes{cwnd} - m_tcb->m_bytesInFlight.Get(),
                        .cwnd = cwnd,
                        .bytes = std::min<Bytes>(m_pace->GetSendQuantum(), written),
                        .may_leave = m_mayLeave,
                        .oldest_sent = m_history.front().time.GetNanoSeconds(),
                        .smoothed_rtt = m_rtt->GetEstimate().GetNanoSeconds()},
                       Simulator::Now().GetNanoSeconds());
}

void SenderSocket::ReceivedAck(Ptr<Packet> packet, const TcpHeader& tcpHeader)
{
    if (m_isSilent)
    {
        return;
    }
    TcpSocketBase::ReceivedAck(packet, tcpHeader);
    // For ns-3's own congestion controls; a Controller has already processed the ACK.
    m_recorder->ObserveLost();
    m_recorder->TakeAckRtt();
}

void SenderSocket::ReTxTimeout()
{
    const auto before = m_dataRetrCount;
    TcpSocketBase::ReTxTimeout();
    if (m_dataRetrCount < before)
    {
        m_recorder->OnTimeout();
    }
}

} // namespace bbrgym
