#pragma once

#include "ns3/callback.h"
#include "ns3/tcp-socket-base.h"

#include <cstdint>

namespace bbrgym
{

/// A listening TCP socket whose connections report every data packet that reaches them, including
/// those that ns-3 drops silently because they hold no new bytes.
class ReceiverSocket : public ns3::TcpSocketBase
{
  public:
    static ns3::TypeId GetTypeId();

    /// Called with the bytes of payload, and whether the packet is the expected one.
    void SetArrivalCallback(ns3::Callback<void, uint32_t, bool> onArrival);

  protected:
    void DoForwardUp(ns3::Ptr<ns3::Packet> packet,
                     const ns3::Address& from,
                     const ns3::Address& to) override;
    ns3::Ptr<ns3::TcpSocketBase> Fork() override;

  private:
    ns3::Callback<void, uint32_t, bool> m_onArrival;
};

} // namespace bbrgym
