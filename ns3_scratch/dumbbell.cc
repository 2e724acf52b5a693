#include "dumbbell.h"

#include "path-channel.h"

#include "envs/model/loss_model.h"
#include "envs/model/policer.h"
#include "envs/model/reordering.h"
#include "envs/model/return_path.h"

#include "ns3/boolean.h"
#include "ns3/callback.h"
#include "ns3/data-rate.h"
#include "ns3/drop-tail-queue.h"
#include "ns3/error-model.h"
#include "ns3/internet-stack-helper.h"
#include "ns3/ipv4-static-routing-helper.h"
#include "ns3/ipv4.h"
#include "ns3/net-device-container.h"
#include "ns3/point-to-point-helper.h"
#include "ns3/queue-size.h"
#include "ns3/simulator.h"
#include "ns3/string.h"
#include "ns3/traffic-control-helper.h"
#include "ns3/uinteger.h"

#include <algorithm>
#include <utility>

namespace bbrgym
{

using namespace ns3;

namespace
{

/// Ethernet's MTU, or more for packets that it would fragment.
uint64_t MtuBytes(const Scenario& scenario)
{
    return std::max<uint64_t>(1500, static_cast<uint64_t>(scenario.packet_bytes + kHeaderBytes));
}

bool HasData(const Packet& packet)
{
    constexpr uint32_t kLargestPureAck = 100; // headers with all options
    return packet.GetSize() > kLargestPureAck;
}

/// Loses data packets at random. Packets without data always pass.
class DataLossModel : public ErrorModel
{
  public:
    static TypeId GetTypeId()
    {
        static TypeId tid = TypeId("bbrgym::DataLossModel").SetParent<ErrorModel>();
        return tid;
    }

    explicit DataLossModel(LossModel loss) : m_loss(loss)
    {
    }

  private:
    bool DoCorrupt(Ptr<Packet> packet) override
    {
        return HasData(*packet) && m_loss.IsNextLost();
    }

    void DoReset() override
    {
    }

    LossModel m_loss;
};

/// Drops what exceeds the policer.
class PolicerModel : public ErrorModel
{
  public:
    static TypeId GetTypeId()
    {
        static TypeId tid = TypeId("bbrgym::PolicerModel").SetParent<ErrorModel>();
        return tid;
    }

    explicit PolicerModel(Policer policer) : m_policer(policer)
    {
    }

  private:
    bool DoCorrupt(Ptr<Packet> packet) override
    {
        return !m_policer.Admits(Simulator::Now().GetNanoSeconds(), packet->GetSize() - kPppBytes);
    }

    void DoReset() override
    {
    }

    Policer m_policer;
};

Time FromMs(double ms)
{
    return NanoSeconds(static_cast<int64_t>(ms * 1e6));
}

/// Gives the device an address in a network of its own; returns the number of the interface. (The
/// helper of ns-3 would also install a queue discipline.)
uint32_t AddAddress(Ptr<NetDevice> device, Ipv4Address address)
{
    Ptr<Ipv4> ipv4 = device->GetNode()->GetObject<Ipv4>();
    const uint32_t interface = ipv4->AddInterface(device);
    ipv4->AddAddress(interface, Ipv4InterfaceAddress(address, Ipv4Mask("255.255.255.252")));
    ipv4->SetUp(interface);
    return interface;
}

void SetDefaultRoute(Ptr<Node> node, Ipv4Address next, uint32_t interface)
{
    Ipv4StaticRoutingHelper routing;
    routing.GetStaticRouting(node->GetObject<Ipv4>())->SetDefaultRoute(next, interface);
}

Ipv4Address AddressOf(uint32_t network, std::size_t flow, uint32_t host)
{
    return Ipv4Address((network << 24U) + (static_cast<uint32_t>(flow) << 2U) + host);
}

constexpr uint32_t kSenderNetwork = 10;
constexpr uint32_t kBottleneckNetwork = 11;

} // namespace

Dumbbell::Dumbbell(const Scenario& scenario,
                   uint64_t linkSeed,
                   const std::vector<uint64_t>& flowSeeds,
                   double accessMbps)
    : m_router(CreateObject<Node>()), m_receiver(CreateObject<Node>())
{
    InternetStackHelper stack;
    stack.SetIpv6StackInstall(false);
    Ipv4StaticRoutingHelper routing;
    stack.SetRoutingHelper(routing);
    stack.Install(m_router);
    stack.Install(m_receiver);
    for (std::size_t i = 0; i < scenario.flows.size(); ++i)
    {
        m_senders.push_back(CreateObject<Node>());
        stack.Install(m_senders.back());
    }

    m_bottleneckDelay = FromMs(scenario.LinkDelayMs());
    // Much faster than the bottleneck, so that bursts are not spread out and nothing queues.
    m_accessRate =
        static_cast<uint64_t>(std::max(accessMbps, 10.0 * scenario.LargestRateMbps()) * 1e6);

    InstallBottleneck(scenario, linkSeed);
    for (std::size_t i = 0; i < scenario.flows.size(); ++i)
    {
        InstallFlow(scenario, i, flowSeeds.at(i));
    }
}

Ptr<Node> Dumbbell::GetSender(std::size_t flow) const
{
    return m_senders.at(flow);
}

Ptr<Node> Dumbbell::GetReceiver() const
{
    return m_receiver;
}

Ipv4Address Dumbbell::GetReceiverAddress() const
{
    return AddressOf(kBottleneckNetwork, 0, 2);
}

void Dumbbell::InstallBottleneck(const Scenario& scenario, uint64_t seed)
{
    PointToPointHelper link;
    link.SetChannelAttribute("Delay", TimeValue(m_bottleneckDelay));
    link.SetDeviceAttribute("Mtu", UintegerValue(MtuBytes(scenario)));
    link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(m_accessRate)));
    link.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("1000000p"));
    const NetDeviceContainer devices = link.Install(m_router, m_receiver);
    auto forward = DynamicCast<PointToPointNetDevice>(devices.Get(0));
    auto back = DynamicCast<PointToPointNetDevice>(devices.Get(1));
    // ns-3's default of 100 packets would be a hidden second buffer.
    forward->GetQueue()->SetMaxSize(QueueSize("1p"));

    TrafficControlHelper trafficControl;
    const auto capacity =
        QueueSize(QueueSizeUnit::PACKETS, static_cast<uint32_t>(scenario.QueuePackets()));
    const bool isCodel = scenario.Queue() == QueueKind::kCodel;
    if (isCodel || scenario.ce_threshold_ms)
    {
        // "Below MinBytes" is the RFC's "at most maxpacket". CoDel whose queue is always below it
        // is droptail with a threshold for marks.
        const uint32_t minBytes =
            isCodel ? static_cast<uint32_t>(scenario.packet_bytes + kHeaderBytes) + 1 : UINT32_MAX;
        trafficControl.SetRootQueueDisc(
            "ns3::CoDelQueueDisc",
            "MaxSize",
            QueueSizeValue(capacity),
            "MinBytes",
            UintegerValue(minBytes),
            "Target",
            TimeValue(FromMs(scenario.codel_target_ms)),
            "Interval",
            TimeValue(FromMs(scenario.codel_interval_ms)),
            "UseEcn",
            BooleanValue(true),
            "CeThreshold",
            TimeValue(scenario.ce_threshold_ms ? FromMs(*scenario.ce_threshold_ms) : Time::Max()));
    }
    else
    {
        trafficControl.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize", QueueSizeValue(capacity));
    }
    const Ptr<QueueDisc> queueDisc = trafficControl.Install(forward).Get(0);

    if (scenario.loss > 0.0)
    {
        back->SetReceiveErrorModel(CreateObject<DataLossModel>(
            LossModel(scenario.loss, scenario.loss_burst_packets, seed)));
    }

    if (scenario.reordering > 0.0)
    {
        PathChannel::Install(
            forward,
            back,
            [reordering = Reordering(scenario, seed), delay = m_bottleneckDelay.GetNanoSeconds()](
                const Packet& packet, Nanoseconds sent) mutable {
                const Bytes payload = HasData(packet) ? packet.GetSize() : 0;
                return sent + delay + reordering.NextDelay(payload);
            });
    }
    if (Policer policer(scenario); policer.IsActive())
    {
        m_policer = CreateObject<PolicerModel>(policer);
    }

    AddAddress(forward, AddressOf(kBottleneckNetwork, 0, 1));
    const uint32_t interface = AddAddress(back, AddressOf(kBottleneckNetwork, 0, 2));
    SetDefaultRoute(m_receiver, AddressOf(kBottleneckNetwork, 0, 1), interface);

    const auto wireBytes = static_cast<double>(scenario.packet_bytes + kHeaderBytes);
    m_link = std::make_unique<LinkMonitor>(
        queueDisc, forward, back, (wireBytes + kPppBytes) / wireBytes);
    m_link->SetRate(scenario.FirstRateMbps());
    for (const auto& [timeS, rateMbps] : scenario.rate_schedule)
    {
        Simulator::Schedule(Seconds(timeS), &LinkMonitor::SetRate, m_link.get(), rateMbps);
    }
}

void Dumbbell::InstallFlow(const Scenario& scenario, std::size_t flow, uint64_t seed)
{
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(m_accessRate)));
    link.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("1000000p"));

    link.SetDeviceAttribute("Mtu", UintegerValue(MtuBytes(scenario)));
    const double forwardMs = scenario.flows[flow].ForwardMs();
    const Time delay = FromMs(forwardMs) - m_bottleneckDelay;
    link.SetChannelAttribute("Delay", TimeValue(delay));
    const NetDeviceContainer devices = link.Install(m_senders[flow], m_router);
    const auto sender = DynamicCast<PointToPointNetDevice>(devices.Get(0));
    const auto router = DynamicCast<PointToPointNetDevice>(devices.Get(1));
    if (ReturnPath path(scenario.flows[flow], forwardMs, seed); !path.IsConstant())
    {
        PathChannel::Install(
            router,
            sender,
            [path = std::move(path), before = m_bottleneckDelay.GetNanoSeconds()](
                const Packet&, Nanoseconds sent) mutable { return path.Arrival(sent - before); });
    }
    if (m_policer)
    {
        router->SetReceiveErrorModel(m_policer);
        router->TraceConnectWithoutContext(
            "PhyRxDrop",
            Callback<void, Ptr<const Packet>>(
                [link = m_link.get()](Ptr<const Packet>) { link->CountDrop(); }));
    }
    const uint32_t interface = AddAddress(devices.Get(0), AddressOf(kSenderNetwork, flow, 2));
    AddAddress(devices.Get(1), AddressOf(kSenderNetwork, flow, 1));
    SetDefaultRoute(m_senders[flow], AddressOf(kSenderNetwork, flow, 1), interface);
}

} // namespace bbrgym
