#include "rate-ops.h"

#include "ns3/simulator.h"

#include <algorithm>

namespace bbrgym
{

using namespace ns3;

TypeId StockRateOps::GetTypeId()
{
    static TypeId tid = TypeId("bbrgym::StockRateOps").SetParent<TcpRateLinux>();
    return tid;
}

StockRateOps::StockRateOps(FlowRecorder& recorder) : m_recorder(recorder)
{
}

void StockRateOps::SkbSent(TcpTxItem* item, bool isStartOfTransmission)
{
    m_recorder.OnSent(item);
    TcpRateLinux::SkbSent(item, isStartOfTransmission);
}

void StockRateOps::SkbDelivered(TcpTxItem* item)
{
    m_recorder.OnDelivered(item);
    TcpRateLinux::SkbDelivered(item);
}

TypeId LinuxRateOps::GetTypeId()
{
    static TypeId tid = TypeId("bbrgym::LinuxRateOps").SetParent<TcpRateOps>();
    return tid;
}

LinuxRateOps::LinuxRateOps(FlowRecorder& recorder) : m_recorder(recorder)
{
}

void LinuxRateOps::SkbSent(TcpTxItem* item, bool isStartOfTransmission)
{
    m_recorder.OnSent(item);
    if (isStartOfTransmission)
    {
        // Nothing was in flight: the sampling interval starts now, not with the last ACK.
        m_connection.m_firstSentTime = Simulator::Now();
        m_connection.m_deliveredTime = Simulator::Now();
    }
    TcpTxItem::RateInformation& info = item->GetRateInformation();
    info.m_firstSent = m_connection.m_firstSentTime;
    info.m_deliveredTime = m_connection.m_deliveredTime;
    info.m_isAppLimited = m_connection.m_appLimited != 0;
    info.m_delivered = m_connection.m_delivered;
}

void LinuxRateOps::SkbDelivered(TcpTxItem* item)
{
    const FlowRecorder::SendRecord* record = m_recorder.OnDelivered(item);
    if (record == nullptr)
    {
        return; // already SACKed
    }
    m_connection.m_delivered += item->GetSeqSize();
    m_connection.m_deliveredTime = Simulator::Now();

    const TcpTxItem::RateInformation& info = item->GetRateInformation();
    // Packets are delivered in the order of their numbers, which is the order of sending at equal
    // times.
    if (!m_candidate.exists || record->sent >= m_candidate.sent)
    {
        m_candidate.exists = true;
        m_candidate.sent = record->sent;
        m_candidate.sendElapsed = record->sent - info.m_firstSent;
        m_candidate.priorTime = info.m_deliveredTime;
        m_candidate.priorDelivered = info.m_delivered;
        m_candidate.isAppLimited = info.m_isAppLimited;
        m_candidate.txInFlight = record->inFlight;
        m_candidate.lostAtSend = record->lost;
        m_connection.m_firstSentTime = record->sent;
    }
}

void LinuxRateOps::CalculateAppLimited(uint32_t cWnd,
                                       uint32_t inFlight,
                                       uint32_t segmentSize,
                                       const SequenceNumber32& tailSeq,
                                       const SequenceNumber32& nextTx,
                                       const uint32_t lostOut,
                                       const uint32_t retransOut)
{
    const bool hasLessThanAPacket = tailSeq - nextTx < static_cast<int32_t>(segmentSize);
    if (hasLessThanAPacket && inFlight < cWnd && lostOut <= retransOut)
    {
        MarkAppLimited(inFlight);
    }
}

const TcpRateOps::TcpRateSample& LinuxRateOps::GenerateSample(
    uint32_t delivered,
    uint32_t /* lost: an absolute difference, see FlowRecorder::ObserveLost */,
    bool isSackReneg,
    uint32_t priorInFlight,
    const Time& /* minRtt: of the smoothed RTT */)
{
    if (m_connection.m_appLimited != 0 && m_connection.m_delivered > m_connection.m_appLimited)
    {
        m_connection.m_appLimited = 0;
    }
    m_recorder.ObserveLost();
    const Time rtt = m_recorder.TakeAckRtt();
    if (!rtt.IsZero())
    {
        m_minRtt = Min(m_minRtt, rtt);
    }
    const Sender::Counts& counts = m_recorder.GetCounts().sender;

    m_ack = AckEvent{};
    m_ack.now = Simulator::Now().GetNanoSeconds();
    m_ack.rtt = rtt.GetNanoSeconds();
    m_ack.bytes_acked = delivered;
    m_ack.bytes_lost = m_recorder.TakeAckLost();
    m_ack.prior_in_flight = priorInFlight;
    m_ack.delivered = static_cast<Bytes>(m_connection.m_delivered);
    m_ack.sent = counts.sent_bytes;

    if (m_candidate.exists && !isSackReneg)
    {
        const Time ackElapsed = Simulator::Now() - m_candidate.priorTime;
        const Time interval = Max(m_candidate.sendElapsed, ackElapsed);
        RateSample& sample = m_ack.sample;
        sample.interval = interval.GetNanoSeconds();
        sample.delivered =
            static_cast<Bytes>(m_connection.m_delivered - m_candidate.priorDelivered);
        sample.delivery_rate = RateOf(sample.delivered, sample.interval);
        sample.prior_delivered = static_cast<Bytes>(m_candidate.priorDelivered);
        sample.is_app_limited = m_candidate.isAppLimited;
        sample.tx_in_flight = m_candidate.txInFlight;
        sample.lost_since_send = counts.lost_bytes - m_candidate.lostAtSend;
        // An interval shorter than any RTT comes from a spurious retransmission, acknowledged by
        // the ACK of the original.
        sample.is_valid =
            sample.delivered > 0 && interval >= (m_minRtt == Time::Max() ? Time(1) : m_minRtt);
    }
    m_candidate = Candidate{};
    return m_stockSample;
}

const TcpRateOps::TcpRateConnection& LinuxRateOps::GetConnectionRate()
{
    return m_connection;
}

void LinuxRateOps::MarkAppLimited(uint32_t inFlight)
{
    m_connection.m_appLimited =
        static_cast<uint32_t>(std::max<uint64_t>(m_connection.m_delivered + inFlight, 1));
}

} // namespace bbrgym
