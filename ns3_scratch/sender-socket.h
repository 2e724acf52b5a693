#pragma once

#include "controller-congestion-ops.h"
#include "flow-recorder.h"

#include "ns3/tcp-socket-base.h"

namespace bbrgym
{

/// A TCP sender that has a chosen rate sampler, reports to a recorder, and can be silenced.
class SenderSocket : public ns3::TcpSocketBase
{
  public:
    static ns3::TypeId GetTypeId();

    void SetRecorder(FlowRecorder* recorder);
    void SetRateOps(ns3::Ptr<ns3::TcpRateOps> rateOps);
    ns3::Ptr<ns3::TcpSocketState> GetState() const;

    /// Whether the application has more to send; if so, an empty buffer limits the flow.
    void SetHasMoreData(bool hasMore);

    /// Marks what is in flight as limited by the application, if it is. Linux checks this before
    /// every write, ns-3 after it, when there is a packet to send.
    void CheckAppLimited();

    /// Ends sending for good, including retransmissions, as if the process had ended.
    void Silence();

    /// Paces as `pace` says: a burst of its send quantum, then a pause as long as the burst takes
    /// at its rate. Without this the socket paces every packet, as ns-3 does.
    void SetPace(ControllerCongestionOps* pace);

  protected:
    uint32_t AvailableWindow() const override;
    uint32_t SendDataPacket(ns3::SequenceNumber32 seq, uint32_t maxSize, bool withAck) override;
    void ReceivedAck(ns3::Ptr<ns3::Packet> packet, const ns3::TcpHeader& tcpHeader) override;
    void ReTxTimeout() override;

  private:
    bool IsNextBurstHeld() const;

    FlowRecorder* m_recorder = nullptr;
    bool m_hasMoreData = false;
    bool m_isSilent = false;
    ControllerCongestionOps* m_pace = nullptr;
    Bytes m_burst = 0;
    Nanoseconds m_mayLeave = 0; ///< when the next burst may leave
};

} // namespace bbrgym
