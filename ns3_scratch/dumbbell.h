#pragma once

#include "link-monitor.h"

#include "envs/model/scenario.h"

#include "ns3/error-model.h"
#include "ns3/ipv4-address.h"
#include "ns3/node.h"
#include "ns3/point-to-point-net-device.h"
#include "ns3/queue-disc.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace bbrgym
{

/// The network of a Scenario: senders, a router, and the bottleneck to the host with all receivers.
///
///     sender i --(f_i - d)-- router ==(rate, d, queue)== receivers
///
/// f_i is half of the shortest RTT of flow i; a longer RTT lies on the way back. It is a dumbbell
/// whose links behind the bottleneck have no delay, so they are not simulated. Access links and the
/// whole return path are so fast that nothing queues there. The bottleneck has ns-3's queue
/// discipline of the scenario's kind; its device holds one packet, as ns-3's flow control needs,
/// besides the one on the wire.
///
/// A second link leads without delay from the receivers' host to another one, behind which are the
/// receivers of flows that cross it. A reverse link is the bottleneck's way back with a rate and a
/// FIFO queue discipline. Senders are where the first link of their flow begins.
class Dumbbell
{
  public:
    /// `linkSeed` determines the random losses, the seed of a flow its return path. `accessMbps` is
    /// the lowest rate of the links other than the bottleneck.
    Dumbbell(const Scenario& scenario,
             uint64_t linkSeed,
             const std::vector<uint64_t>& flowSeeds,
             double accessMbps);

    ns3::Ptr<ns3::Node> GetSender(std::size_t flow) const;
    ns3::Ptr<ns3::Node> GetReceiver(std::size_t flow) const;
    ns3::Ipv4Address GetReceiverAddress(std::size_t flow) const;

    void StartStep();
    /// What was measured since the last `StartStep`.
    LinkRow GetLinkRow();

  private:
    void InstallBottleneck(const Scenario& scenario, uint64_t seed);
    void InstallSecondLink(const Scenario& link);
    void InstallFlow(const Scenario& scenario, std::size_t flow, uint64_t seed);

    ns3::Ptr<ns3::Node> m_router;
    ns3::Ptr<ns3::Node> m_receiver;
    ns3::Ptr<ns3::Node> m_farReceiver; // behind the second link
    std::vector<ns3::Ptr<ns3::Node>> m_senders;
    std::vector<FlowPath> m_paths;
    ns3::Time m_bottleneckDelay;
    uint64_t m_accessRate = 0;
    ns3::Ptr<ns3::PointToPointNetDevice> m_forward; // of the bottleneck
    ns3::Ptr<ns3::PointToPointNetDevice> m_back;
    std::unique_ptr<LinkMonitor> m_link;
    ns3::Ptr<ns3::ErrorModel> m_policer; // null if there is none
    // Null if there is none.
    std::unique_ptr<LinkMonitor> m_second;
    std::unique_ptr<LinkMonitor> m_reverse;
};

} // namespace bbrgym
