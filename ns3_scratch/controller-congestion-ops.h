#pragma once

#include "flow.h"
#include "rate-ops.h"

#include "baselines/cc/controller.h"

#include "ns3/tcp-congestion-ops.h"
#include "ns3/tcp-tx-buffer.h"

#include <memory>

namespace bbrgym
{

/// Lets a Controller steer an ns-3 socket.
///
/// The controller holds its window itself and sets the socket's after every ACK; whatever ns-3 does
/// to it in between (it sets the slow-start threshold on leaving recovery, whatever the congestion
/// control says) does not last.
class ControllerCongestionOps : public ns3::TcpCongestionOps
{
  public:
    static ns3::TypeId GetTypeId();
    ControllerCongestionOps(ns3::Ptr<LinuxRateOps> rateOps, ns3::Ptr<ns3::TcpTxBuffer> buffer);

    /// Hands over the connection once its handshake is done. Until then the socket's defaults rule.
    void Start(std::unique_ptr<Controller> controller, ns3::Ptr<ns3::TcpSocketState> tcb);

    /// Null before `Start`.
    Controller* GetController() const
    {
        return m_controller.get();
    }

    bool IsPaced() const
    {
        return m_isPaced;
    }

    /// How many bytes may leave back to back.
    Bytes GetSendQuantum() const
    {
        return m_sendQuantum;
    }

    std::string GetName() const override;
    bool HasCongControl() const override;
    void CongControl(ns3::Ptr<ns3::TcpSocketState> tcb,
                     const ns3::TcpRateOps::TcpRateConnection& rc,
                     const ns3::TcpRateOps::TcpRateSample& rs) override;
    void CongestionStateSet(ns3::Ptr<ns3::TcpSocketState> tcb,
                            const ns3::TcpSocketState::TcpCongState_t newState) override;
    void CwndEvent(ns3::Ptr<ns3::TcpSocketState> tcb,
                   const ns3::TcpSocketState::TcpCAEvent_t event) override;
    uint32_t GetSsThresh(ns3::Ptr<const ns3::TcpSocketState> tcb, uint32_t bytesInFlight) override;
    void IncreaseWindow(ns3::Ptr<ns3::TcpSocketState> tcb, uint32_t segmentsAcked) override;
    ns3::Ptr<ns3::TcpCongestionOps> Fork() override;

  private:
    void Apply(ns3::Ptr<ns3::TcpSocketState> tcb);

    ns3::Ptr<LinuxRateOps> m_rateOps;
    ns3::Ptr<ns3::TcpTxBuffer> m_buffer;
    std::unique_ptr<Controller> m_controller;
    Bytes m_sendQuantum = 0;
    bool m_isPaced = false;
};

} // namespace bbrgym
