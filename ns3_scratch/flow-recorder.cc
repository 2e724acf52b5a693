#include "flow-recorder.h"

#include "ns3/simulator.h"

#include <limits>
#include <utility>

namespace bbrgym
{

using namespace ns3;

void FlowRecorder::SetBuffer(Ptr<TcpTxBuffer> buffer)
{
    m_buffer = buffer;
}

void FlowRecorder::OnSent(const TcpTxItem* item)
{
    SendRecord& record = m_records[item];
    if (item->IsRetrans())
    {
        record.transmissions = std::max(record.transmissions, 1U) + 1;
        ++m_counts.retransmittedPackets;
    }
    else
    {
        // Also when an item that is gone left its address behind.
        record.transmissions = 1;
    }
    record.sent = Simulator::Now();
    record.inFlight = m_buffer->BytesInFlight();
    record.lost = m_counts.lostBytes;
    ++m_counts.sentPackets;
    m_counts.sentBytes += item->GetSeqSize();
}

const FlowRecorder::SendRecord* FlowRecorder::OnDelivered(TcpTxItem* item)
{
    ObserveLost();
    const auto found = m_records.find(item);
    if (found == m_records.end())
    {
        return nullptr;
    }
    m_delivered = found->second;
    m_records.erase(found);
    m_counts.deliveredBytes += item->GetSeqSize();
    if (!m_hasDelivered || m_delivered.sent >= m_newestSent)
    {
        m_hasDelivered = true;
        m_newestSent = m_delivered.sent;
        m_isNewestRetransmitted = m_delivered.transmissions > 1;
    }
    return &m_delivered;
}

void FlowRecorder::OnTimeout()
{
    ++m_counts.timeouts;
    ObserveLost();
    m_lostSinceAck = 0; // as in Linux, where only an ACK's own findings are its losses
}

void FlowRecorder::OnReceived(uint32_t bytes)
{
    m_counts.receivedBytes += bytes;
}

void FlowRecorder::OnArrived(uint32_t bytes, bool isInOrder)
{
    m_counts.arrivedBytes += bytes;
    if (isInOrder)
    {
        m_counts.inorderBytes += bytes;
    }
}

void FlowRecorder::OnBufferLimited()
{
    m_isBufferLimited = true;
}

void FlowRecorder::ObserveLost()
{
    const uint64_t outstanding = m_buffer->GetLost();
    if (outstanding > m_lostOutstanding)
    {
        m_counts.lostBytes += outstanding - m_lostOutstanding;
        m_lostSinceAck += outstanding - m_lostOutstanding;
    }
    m_lostOutstanding = outstanding;
}

uint64_t FlowRecorder::TakeAckLost()
{
    return std::exchange(m_lostSinceAck, 0);
}

Time FlowRecorder::TakeAckRtt()
{
    // Karn's rule (RFC 6298, section 3): a retransmitted packet's RTT is ambiguous.
    const bool isValid = m_hasDelivered && !m_isNewestRetransmitted;
    m_hasDelivered = false;
    if (!isValid)
    {
        return Time();
    }
    const Time rtt = Simulator::Now() - m_newestSent;
    m_rttMin = m_rttCount == 0 ? rtt : Min(m_rttMin, rtt);
    m_rttSum += rtt;
    ++m_rttCount;
    m_counts.lastRtt = rtt;
    return rtt;
}

double FlowRecorder::GetMeanRttMs() const
{
    return m_rttCount == 0 ? std::numeric_limits<double>::quiet_NaN()
                           : static_cast<double>(m_rttSum.GetNanoSeconds()) /
                                 static_cast<double>(m_rttCount) / 1e6;
}

double FlowRecorder::GetMinRttMs() const
{
    return m_rttCount == 0 ? std::numeric_limits<double>::quiet_NaN()
                           : static_cast<double>(m_rttMin.GetNanoSeconds()) / 1e6;
}

void FlowRecorder::StartStep()
{
    m_rttCount = 0;
    m_rttSum = Time();
    m_isBufferLimited = false;
}

} // namespace bbrgym
