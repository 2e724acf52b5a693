#pragma once

#include "controller-congestion-ops.h"
#include "dumbbell.h"
#include "flow-recorder.h"
#include "flow.h"
#include "receiver-socket.h"
#include "sender-socket.h"

#include "ns3/event-id.h"
#include "ns3/inet-socket-address.h"
#include "ns3/socket.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace bbrgym
{

/// A flow over ns-3's TCP: a source, its socket, and the receiver.
class TcpFlow : public FlowRun
{
  public:
    TcpFlow(const Scenario& scenario,
            std::size_t index,
            Dumbbell& dumbbell,
            uint64_t seed,
            std::function<void()> onComplete);

    FlowRow GetRow(ns3::Time stepStart) const override;

  private:
    void Connect() override;
    void Silence() override;
    Controller* GetController() override;
    FlowCounts StartSamples() override;
    void OnConnected(ns3::Ptr<ns3::Socket> socket);
    void FillBuffer(ns3::Ptr<ns3::Socket> socket, uint32_t available);
    void Write();
    void OnAccepted(ns3::Ptr<ns3::Socket> socket, const ns3::Address& from);
    void OnReadable(ns3::Ptr<ns3::Socket> socket);

    ns3::InetSocketAddress m_receiverAddress;

    FlowRecorder m_recorder;
    ns3::Ptr<LinuxRateOps> m_rateOps; // null for ns-3's own congestion controls
    ns3::Ptr<ControllerCongestionOps> m_congestionOps;
    ns3::Ptr<SenderSocket> m_sender;
    ns3::Ptr<ns3::Socket> m_listener;

    uint64_t m_writtenBytes = 0;
    std::optional<AppSource> m_source; // when the application writes, if not all at once
    ns3::EventId m_write;
};

} // namespace bbrgym
