#pragma once

#include "controller-congestion-ops.h"
#include "flow-recorder.h"

#include "ns3/tcp-socket-base.h"

namespace bbrgym
{

/// A TCP sender whose rate sampler can be chosen, that tells a recorder what it does, and that can
/// fall silent.
class SenderSocket : public ns3::TcpSocketBase
{
  public:
    static ns3::TypeId GetTypeId();

    void SetRecorder(FlowRecorder* recorder);
    void SetRateOps(ns3::Ptr<ns3::TcpRateOps> rateOps);
    ns3::Ptr<ns3::TcpSocketState> GetState() const;

    /// Whether the application has more to send whenever there is room; if so, an empty buffer
    /// limits the flow.
    void SetHasMoreData(bool hasMore);

    /// Sends nothing any more, not even retransmissions, as if the process had ended.
    void Silence();

    /// Takes the pace from there: bursts of its send quantum, then as long a pause as the burst
    /// takes at its rate. Without this the socket paces every packet, as ns-3 does.
    void SetPace(ControllerCongestionOps* pace);

  protected:
    uint32_t AvailableWindow() const override;
    uint32_t SendDataPacket(ns3::SequenceNumber32 seq, uint32_t maxSize, bool withAck) override;
    void ReceivedAck(ns3::Ptr<ns3::Packet> packet, const ns3::TcpHeader& tcpHeader) override;
    void ReTxTimeout() override;

  private:
    FlowRecorder* m_recorder = nullptr;
    bool m_hasMoreData = false;
    bool m_isSilent = false;
    ControllerCongestionOps* m_pace = nullptr;
    Bytes m_burst = 0;
};

} // namespace bbrgym
