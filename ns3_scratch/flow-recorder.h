#pragma once

#include "baselines/cc/rtt_sample.h"
#include "envs/transport/flow_row.h"

#include "ns3/nstime.h"
#include "ns3/tcp-tx-buffer.h"
#include "ns3/tcp-tx-item.h"

#include <cstdint>
#include <unordered_map>

namespace bbrgym
{

/// Counts the packets of one TCP flow, for its rows and for its rate samples, with any congestion
/// control.
class FlowRecorder
{
  public:
    /// A packet as it was last sent.
    struct SendRecord
    {
        ns3::Time sent;
        uint32_t transmissions = 0;
        /// In flight just after it was sent and lost in total by then, in bytes.
        uint32_t inFlight = 0;
        Bytes lost = 0;
    };

    void SetBuffer(ns3::Ptr<ns3::TcpTxBuffer> buffer);

    void OnSent(const ns3::TcpTxItem* item);
    /// A packet is acknowledged, cumulatively or by SACK. Returns how it was sent, or null if it
    /// was already known to be delivered.
    const SendRecord* OnDelivered(ns3::TcpTxItem* item);
    void OnTimeout();
    void OnReceived(uint32_t bytes);
    /// A data packet reaches the receiver; `isInOrder` if it is the expected one.
    void OnArrived(uint32_t bytes, bool isInOrder);
    void OnBufferLimited();

    /// Adds what has been marked lost since the last call. The scoreboard only tells how much is
    /// lost and not yet delivered. A call between any two changes of opposite sign makes a total of
    /// that. (ns-3 passes on the difference over a whole ACK, which mixes new losses with repaired
    /// ones.)
    void ObserveLost();

    /// Ends an ACK: returns the bytes marked lost since the last one, without those of a timeout.
    Bytes TakeAckLost();
    /// Ends an ACK: returns the RTT of the newest packet it delivered; zero if it delivered none or
    /// that packet was retransmitted.
    ns3::Time TakeAckRtt();

    const FlowCounts& GetCounts() const
    {
        return m_counts;
    }

    /// The step's RTT samples; `StartStep` forgets them.
    const RttSample& GetRttSamples() const
    {
        return m_rtts;
    }

    bool IsBufferLimited() const
    {
        return m_isBufferLimited;
    }

    void StartStep();

  private:
    ns3::Ptr<ns3::TcpTxBuffer> m_buffer;
    std::unordered_map<const ns3::TcpTxItem*, SendRecord> m_records;
    SendRecord m_delivered; // what OnDelivered points to
    FlowCounts m_counts;
    Bytes m_lostOutstanding = 0;
    Bytes m_lostSinceAck = 0;

    ns3::Time m_newestSent;
    bool m_isNewestRetransmitted = false;
    bool m_hasDelivered = false;

    RttSample m_rtts;
    bool m_isBufferLimited = false;
};

} // namespace bbrgym
