#include "flow-recorder.h"

#include "ns3/simulator.h"

#include <algorithm>
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
        ++m_counts.sender.retransmitted_packets;
    }
    else
    {
        // The record may be that of a former item at the same address.
        record.transmissions = 1;
    }
    record.sent = Simulator::Now();
    record.inFlight = m_buffer->BytesInFlight();
    record.lost = m_counts.sender.lost_bytes;
    ++m_counts.sender.sent_packets;
    m_counts.sender.sent_bytes += item->GetSeqSize();
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
    m_counts.sender.delivered_bytes += item->GetSeqSize();
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
    ++m_counts.sender.timeouts;
    ObserveLost();
    m_lostSinceAck = 0; // as in Linux, an ACK's losses are those that it reveals
}

void FlowRecorder::OnReceived(uint32_t bytes)
{
    m_counts.receiver.received += bytes;
}

void FlowRecorder::OnArrived(uint32_t bytes, bool isInOrder)
{
    m_counts.receiver.arrived += bytes;
    if (isInOrder)
    {
        m_counts.receiver.inorder += bytes;
    }
}

void FlowRecorder::OnBufferLimited()
{
    m_isBufferLimited = true;
}

void FlowRecorder::ObserveLost()
{
    const Bytes outstanding = m_buffer->GetLost();
    if (outstanding > m_lostOutstanding)
    {
        m_counts.sender.lost_bytes += outstanding - m_lostOutstanding;
        m_lostSinceAck += outstanding - m_lostOutstanding;
    }
    m_lostOutstanding = outstanding;
}

Bytes FlowRecorder::TakeAckLost()
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
    const Time elapsed = Simulator::Now() - m_newestSent;
    const Nanoseconds rtt = elapsed.GetNanoSeconds();
    m_rtts.Add(rtt);
    m_counts.sender.last_rtt = rtt;
    return elapsed;
}

void FlowRecorder::StartStep()
{
    m_rtts = {};
    m_isBufferLimited = false;
}

} // namespace bbrgym
