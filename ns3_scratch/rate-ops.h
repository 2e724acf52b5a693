#pragma once

#include "flow-recorder.h"

#include "baselines/cc/controller.h"

#include "ns3/tcp-rate-ops.h"

namespace bbrgym
{

/// ns-3's own rate sampler, which also counts packets: for ns-3's own congestion controls.
class StockRateOps : public ns3::TcpRateLinux
{
  public:
    static ns3::TypeId GetTypeId();
    explicit StockRateOps(FlowRecorder& recorder);

    void SkbSent(ns3::TcpTxItem* item, bool isStartOfTransmission) override;
    void SkbDelivered(ns3::TcpTxItem* item) override;

  private:
    FlowRecorder& m_recorder;
};

/// The delivery-rate sampler of Linux (net/ipv4/tcp_rate.c;
/// draft-cheng-iccrg-delivery-rate-estimation-02).
///
/// It differs from ns3::TcpRateLinux, which can overestimate bandwidth: here every ACK makes a new
/// sample, from the last sent of the packets that it delivers. (If two packets were sent between
/// the same two ACKs, ns-3 keeps the interval of the previous ACK but counts the new bytes: (d + 1)
/// / old interval.) It also has what ns-3's sample lacks: the bytes in flight and lost when the
/// sampled packet was sent.
class LinuxRateOps : public ns3::TcpRateOps
{
  public:
    static ns3::TypeId GetTypeId();
    explicit LinuxRateOps(FlowRecorder& recorder);

    void SkbSent(ns3::TcpTxItem* item, bool isStartOfTransmission) override;
    void SkbDelivered(ns3::TcpTxItem* item) override;
    void CalculateAppLimited(uint32_t cWnd,
                             uint32_t inFlight,
                             uint32_t segmentSize,
                             const ns3::SequenceNumber32& tailSeq,
                             const ns3::SequenceNumber32& nextTx,
                             const uint32_t lostOut,
                             const uint32_t retransOut) override;
    const TcpRateSample& GenerateSample(uint32_t delivered,
                                        uint32_t lost,
                                        bool isSackReneg,
                                        uint32_t priorInFlight,
                                        const ns3::Time& minRtt) override;
    const TcpRateConnection& GetConnectionRate() override;

    /// Marks what is sent until everything now in flight is delivered as application-limited.
    void MarkAppLimited(uint32_t inFlight);

    /// The event of the ACK of the last `GenerateSample`.
    const AckEvent& GetAckEvent() const
    {
        return m_ack;
    }

  private:
    FlowRecorder& m_recorder;
    TcpRateConnection m_connection;
    TcpRateSample m_stockSample; // the socket passes it on, but it is never read

    /// The last sent of the packets that the current ACK delivers.
    struct Candidate
    {
        bool exists = false;
        ns3::Time sent;
        ns3::Time sendElapsed;
        ns3::Time priorTime;
        uint64_t priorDelivered = 0;
        bool isAppLimited = false;
        uint32_t txInFlight = 0;
        Bytes lostAtSend = 0;
    };

    Candidate m_candidate;
    ns3::Time m_minRtt = ns3::Time::Max();
    AckEvent m_ack;
};

} // namespace bbrgym
