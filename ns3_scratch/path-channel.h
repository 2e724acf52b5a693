#pragma once

#include "envs/model/packet.h"

#include "ns3/packet.h"
#include "ns3/point-to-point-channel.h"
#include "ns3/point-to-point-net-device.h"

#include <functional>

namespace bbrgym
{

/// A link on which a model decides when the packets of one of its devices arrive, and which are
/// lost.
class PathChannel : public ns3::PointToPointChannel
{
  public:
    static ns3::TypeId GetTypeId();

    /// When a packet arrives that has been sent at a time; `kNever` if it is lost.
    using Arrival = std::function<Nanoseconds(const ns3::Packet& packet, Nanoseconds sent)>;

    /// Takes the place of the channel between two devices, with its delay. `source` is one of them.
    static void Install(ns3::Ptr<ns3::PointToPointNetDevice> source,
                        ns3::Ptr<ns3::PointToPointNetDevice> other,
                        Arrival arrival);

    PathChannel(ns3::Ptr<ns3::PointToPointNetDevice> source, Arrival arrival);

    bool TransmitStart(ns3::Ptr<const ns3::Packet> packet,
                       ns3::Ptr<ns3::PointToPointNetDevice> source,
                       ns3::Time txTime) override;

  private:
    void DoDispose() override;

    ns3::Ptr<ns3::PointToPointNetDevice> m_source;
    Arrival m_arrival;
};

} // namespace bbrgym
