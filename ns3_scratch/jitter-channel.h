#pragma once

#include "envs/model/ack_jitter.h"

#include "ns3/point-to-point-channel.h"
#include "ns3/point-to-point-net-device.h"

#include <cstdint>

namespace bbrgym
{

/// A link with jitter for the packets of one of its devices.
class JitterChannel : public ns3::PointToPointChannel
{
  public:
    static ns3::TypeId GetTypeId();

    JitterChannel(ns3::Ptr<ns3::PointToPointNetDevice> source, AckJitter jitter);

    bool TransmitStart(ns3::Ptr<const ns3::Packet> packet,
                       ns3::Ptr<ns3::PointToPointNetDevice> source,
                       ns3::Time txTime) override;

  private:
    void DoDispose() override;

    ns3::Ptr<ns3::PointToPointNetDevice> m_source;
    AckJitter m_jitter;
};

} // namespace bbrgym
