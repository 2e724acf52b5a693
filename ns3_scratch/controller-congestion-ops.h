#pragma once

#include "flow.h"
#include "rate-ops.h"

#include "baselines/cc/controller.h"
#include "envs/transport/window_usage.h"

#include "ns3/tcp-congestion-ops.h"
#include "ns3/tcp-tx-buffer.h"

#include <memory>

namespace bbrgym
{

/// Lets a Controller drive an ns-3 socket.
///
/// The controller keeps the window and sets the socket's after every ACK. Changes that ns-3 makes
/// in between do not last. (On leaving recovery it sets the slow-start threshold, whatever the
/// congestion control says.)
class ControllerCongestionOps : public ns3::TcpCongestionOps
{
  public:
    static ns3::TypeId GetTypeId();
    ControllerCongestionOps(ns3::Ptr<LinuxRateOps> rateOps, ns3::Ptr<ns3::TcpTxBuffer> buffer);

    /// Takes over the connection after its handshake. Until then the socket's defaults apply.
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

    /// How many bytes may be sent back to back.
    Bytes GetSendQuantum() const
    {
        return m_sendQuantum;
    }

    /// Whether a burst waits until the window has room for all of it.
    bool IsBurstWhole() const
    {
        return m_isBurstWhole;
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
    WindowUsage m_windowUsage;
    Bytes m_sendQuantum = 0;
    bool m_isBurstWhole = false;
    bool m_isPaced = false;
};

} // namespace bbrgym
