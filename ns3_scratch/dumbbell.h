#pragma once

#include "link-monitor.h"

#include "envs/native/scenario.h"

#include "ns3/ipv4-address.h"
#include "ns3/node.h"
#include "ns3/point-to-point-net-device.h"
#include "ns3/queue-disc.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace bbrgym
{

/// The network of a Scenario: a sender and a receiver for every flow, and two routers with the bottleneck between them.
///
///     sender i --(rtt_i/2 - d)-- left router ==(rate, d, queue)== right router --(0)-- receiver i
///
/// Access links and the whole way back are so fast that nothing queues there. The bottleneck's queue is a FIFO queue
/// discipline; its device holds one packet more, as ns-3's flow control needs, besides the one on the wire.
class Dumbbell
{
  public:
    Dumbbell(const Scenario& scenario, uint64_t seed);

    ns3::Ptr<ns3::Node> GetSender(std::size_t flow) const;
    ns3::Ptr<ns3::Node> GetReceiver(std::size_t flow) const;
    ns3::Ipv4Address GetReceiverAddress(std::size_t flow) const;

    LinkMonitor& GetLink()
    {
        return *m_link;
    }

  private:
    void InstallBottleneck(const Scenario& scenario, uint64_t seed);
    void InstallFlow(const Scenario& scenario, std::size_t flow);

    ns3::Ptr<ns3::Node> m_left;
    ns3::Ptr<ns3::Node> m_right;
    std::vector<ns3::Ptr<ns3::Node>> m_senders;
    std::vector<ns3::Ptr<ns3::Node>> m_receivers;
    ns3::Time m_bottleneckDelay;
    uint64_t m_accessRate = 0;
    std::unique_ptr<LinkMonitor> m_link;
};

} // namespace bbrgym
