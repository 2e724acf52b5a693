#include "dumbbell.h"

#include "path-channel.h"

#include "envs/model/loss_model.h"
#include "envs/model/policer.h"
#include "envs/model/reordering.h"
#include "envs/model/return_path.h"

#include "ns3/boolean.h"
#include "ns3/callback.h"
#include "ns3/config.h"
#include "ns3/data-rate.h"
#include "ns3/drop-tail-queue.h"
#include "ns3/error-model.h"
#include "ns3/internet-stack-helper.h"
#include "ns3/ipv4-static-routing-helper.h"
#include "ns3/ipv4.h"
#include "ns3/net-device-container.h"
#include "ns3/pie-queue-disc.h"
#include "ns3/point-to-point-helper.h"
#include "ns3/queue-size.h"
#include "ns3/simulator.h"
#include "ns3/string.h"
#include "ns3/traffic-control-helper.h"
#include "ns3/uinteger.h"

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

namespace bbrgym
{

using namespace ns3;

namespace
{

bool HasData(const Packet& packet)
{
    constexpr uint32_t kLargestPureAck = 100; // headers with all options
    return packet.GetSize() > kLargestPureAck;
}

/// Drops the packets that a function chooses.
class DropModel : public ErrorModel
{
  public:
    static TypeId GetTypeId()
    {
        static TypeId tid = TypeId("bbrgym::DropModel").SetParent<ErrorModel>();
        return tid;
    }

    explicit DropModel(std::function<bool(const Packet&)> isDropped)
        : m_isDropped(std::move(isDropped))
    {
    }

  private:
    bool DoCorrupt(Ptr<Packet> packet) override
    {
        return m_isDropped(*packet);
    }

    void DoReset() override
    {
    }

    std::function<bool(const Packet&)> m_isDropped;
};

Time FromMs(double ms)
{
    return NanoSeconds(FromMilliseconds(ms));
}

/// ns-3's own queue discipline of the scenario's kind.
TrafficControlHelper QueueDiscOf(const Scenario& scenario)
{
    const QueueSizeValue capacity(
        QueueSize(QueueSizeUnit::PACKETS, static_cast<uint32_t>(scenario.QueuePackets())));
    const TimeValue ceThreshold(scenario.ce_threshold_ms ? FromMs(*scenario.ce_threshold_ms)
                                                         : Time::Max());
    const TimeValue target(FromMs(scenario.codel_target_ms));
    const TimeValue interval(FromMs(scenario.codel_interval_ms));
    const BooleanValue useEcn(true);
    // CoDel's "below MinBytes" is the RFC's "at most maxpacket".
    const UintegerValue minBytes(static_cast<uint32_t>(scenario.packet_bytes + kHeaderBytes) + 1);
    TrafficControlHelper helper;
    const auto setCodel = [&](const UintegerValue& bytes) {
        helper.SetRootQueueDisc("ns3::CoDelQueueDisc",
                                "MaxSize",
                                capacity,
                                "MinBytes",
                                bytes,
                                "Target",
                                target,
                                "Interval",
                                interval,
                                "UseEcn",
                                useEcn,
                                "CeThreshold",
                                ceThreshold);
    };
    const auto inNs = [](const TimeValue& time) {
        return StringValue(std::to_string(time.Get().GetNanoSeconds()) + "ns");
    };
    switch (scenario.Queue())
    {
    case QueueKind::kDroptail:
        if (scenario.ce_threshold_ms)
        {
            // CoDel whose queue is always below MinBytes only marks.
            setCodel(UintegerValue(UINT32_MAX));
        }
        else
        {
            helper.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize", capacity);
        }
        break;
    case QueueKind::kCodel:
        setCodel(minBytes);
        break;
    case QueueKind::kPie:
        if (scenario.ce_threshold_ms)
        {
            throw std::invalid_argument(
                "ns-3 cannot run queue 'pie' with ce_threshold_ms: its PIE has no "
                "such threshold; the native engine has");
        }
        helper.SetRootQueueDisc("ns3::PieQueueDisc",
                                "MaxSize",
                                capacity,
                                "QueueDelayReference",
                                TimeValue(FromMs(scenario.pie_target_ms)),
                                "MaxBurstAllowance",
                                TimeValue(MilliSeconds(150)), // ns-3's default is 15
                                "UseEcn",
                                useEcn);
        break;
    case QueueKind::kFqCodel:
        // The only way to the queues that it makes itself.
        Config::SetDefault("ns3::CoDelQueueDisc::MinBytes", minBytes);
        helper.SetRootQueueDisc("ns3::FqCoDelQueueDisc",
                                "MaxSize",
                                capacity,
                                "Target",
                                inNs(target),
                                "Interval",
                                inNs(interval),
                                "UseEcn",
                                useEcn,
                                "CeThreshold",
                                ceThreshold);
        break;
    case QueueKind::kDualPi2:
        throw std::invalid_argument("ns-3 cannot run queue 'dualpi2': ns-3 3.44 has no such queue "
                                    "discipline; the native and the Linux engine have");
    }
    return helper;
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

// Streams that are not assigned depend on how many simulations the process has run before.
constexpr int64_t kPieStream = 0;
constexpr uint32_t kSenderNetwork = 10;
constexpr uint32_t kBottleneckNetwork = 11;
constexpr uint32_t kSecondNetwork = 12;

InternetStackHelper MakeStack()
{
    InternetStackHelper stack;
    stack.SetIpv6StackInstall(false);
    Ipv4StaticRoutingHelper routing;
    stack.SetRoutingHelper(routing);
    return stack;
}

/// Gives a device the rate and the queue of a link.
std::unique_ptr<LinkMonitor> Limit(const Scenario& link,
                                   Ptr<PointToPointNetDevice> device,
                                   Ptr<PointToPointNetDevice> farDevice)
{
    // ns-3's default of 100 packets would be a hidden second buffer.
    device->GetQueue()->SetMaxSize(QueueSize("1p"));
    const Ptr<QueueDisc> queueDisc = QueueDiscOf(link).Install(device).Get(0);
    if (const auto pie = DynamicCast<PieQueueDisc>(queueDisc))
    {
        pie->AssignStreams(kPieStream);
    }
    // ns-3's frames are longer than the scenario's packets.
    const auto wireBytes = static_cast<double>(link.packet_bytes + kHeaderBytes);
    auto monitor = std::make_unique<LinkMonitor>(
        queueDisc, device, farDevice, (wireBytes + kPppBytes) / wireBytes);
    monitor->SetRate(link.FirstRateMbps());
    return monitor;
}

} // namespace

Dumbbell::Dumbbell(const Scenario& scenario,
                   uint64_t linkSeed,
                   const std::vector<uint64_t>& flowSeeds,
                   double accessMbps)
    : m_router(CreateObject<Node>()), m_receiver(CreateObject<Node>())
{
    const InternetStackHelper stack = MakeStack();
    stack.Install(m_router);
    stack.Install(m_receiver);
    for (std::size_t i = 0; i < scenario.flows.size(); ++i)
    {
        m_senders.push_back(CreateObject<Node>());
        stack.Install(m_senders.back());
        m_paths.push_back(scenario.flows[i].Path());
    }

    m_bottleneckDelay = FromMs(scenario.LinkDelayMs());
    // Much faster than the bottleneck, so that bursts are not spread out and nothing queues.
    m_accessRate =
        static_cast<uint64_t>(std::max(accessMbps, 10.0 * scenario.LargestRateMbps()) * 1e6);

    InstallBottleneck(scenario, linkSeed);
    if (const auto second = scenario.SecondLink())
    {
        InstallSecondLink(*second);
    }
    if (const auto reverse = scenario.ReverseLink())
    {
        m_reverse = Limit(*reverse, m_back, m_forward);
    }
    for (std::size_t i = 0; i < scenario.flows.size(); ++i)
    {
        InstallFlow(scenario, i, flowSeeds.at(i));
    }
}

Ptr<Node> Dumbbell::GetSender(std::size_t flow) const
{
    return m_senders.at(flow);
}

Ptr<Node> Dumbbell::GetReceiver(std::size_t flow) const
{
    if (m_paths.at(flow) == FlowPath::kReverse)
    {
        return m_router;
    }
    return m_second && m_paths[flow] != FlowPath::kFirstHop ? m_farReceiver : m_receiver;
}

Ipv4Address Dumbbell::GetReceiverAddress(std::size_t flow) const
{
    const Ptr<Node> receiver = GetReceiver(flow);
    if (receiver == m_farReceiver)
    {
        return AddressOf(kSecondNetwork, 0, 2);
    }
    return AddressOf(kBottleneckNetwork, 0, receiver == m_router ? 1 : 2);
}

void Dumbbell::StartStep()
{
    for (LinkMonitor* link : {m_link.get(), m_second.get(), m_reverse.get()})
    {
        if (link)
        {
            link->StartStep();
        }
    }
}

LinkRow Dumbbell::GetLinkRow()
{
    LinkRow row = m_link->GetRow();
    if (m_second)
    {
        AddSecondLink(row, m_second->GetRow());
    }
    if (m_reverse)
    {
        AddReverseLink(row, m_reverse->GetRow());
    }
    return row;
}

void Dumbbell::InstallBottleneck(const Scenario& scenario, uint64_t seed)
{
    PointToPointHelper link;
    link.SetChannelAttribute("Delay", TimeValue(m_bottleneckDelay));
    link.SetDeviceAttribute("Mtu", UintegerValue(scenario.MtuBytes()));
    link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(m_accessRate)));
    link.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("1000000p"));
    const NetDeviceContainer devices = link.Install(m_router, m_receiver);
    auto forward = DynamicCast<PointToPointNetDevice>(devices.Get(0));
    auto back = DynamicCast<PointToPointNetDevice>(devices.Get(1));
    m_link = Limit(scenario, forward, back);

    if (scenario.loss > 0.0)
    {
        back->SetReceiveErrorModel(
            CreateObject<DropModel>([loss = LossModel(scenario, seed),
                                     delay = m_bottleneckDelay](const Packet& packet) mutable {
                return HasData(packet) &&
                       loss.IsNextLost((Simulator::Now() - delay).GetNanoSeconds());
            }));
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
        m_policer = CreateObject<DropModel>([policer](const Packet& packet) mutable {
            return !policer.Admits(Simulator::Now().GetNanoSeconds(), packet.GetSize() - kPppBytes);
        });
    }

    const uint32_t routersInterface = AddAddress(forward, AddressOf(kBottleneckNetwork, 0, 1));
    // Everything but the router's own senders is behind the bottleneck.
    SetDefaultRoute(m_router, AddressOf(kBottleneckNetwork, 0, 2), routersInterface);
    const uint32_t interface = AddAddress(back, AddressOf(kBottleneckNetwork, 0, 2));
    SetDefaultRoute(m_receiver, AddressOf(kBottleneckNetwork, 0, 1), interface);

    m_forward = forward;
    m_back = back;
    for (const auto& [timeS, rateMbps] : scenario.rate_schedule)
    {
        Simulator::Schedule(Seconds(timeS), &LinkMonitor::SetRate, m_link.get(), rateMbps);
    }
}

void Dumbbell::InstallSecondLink(const Scenario& scenario)
{
    m_farReceiver = CreateObject<Node>();
    MakeStack().Install(m_farReceiver);
    PointToPointHelper link;
    link.SetDeviceAttribute("Mtu", UintegerValue(scenario.MtuBytes()));
    link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(m_accessRate)));
    link.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("1000000p"));
    const NetDeviceContainer devices = link.Install(m_receiver, m_farReceiver);
    const auto device = DynamicCast<PointToPointNetDevice>(devices.Get(0));
    const auto farDevice = DynamicCast<PointToPointNetDevice>(devices.Get(1));
    m_second = Limit(scenario, device, farDevice);
    AddAddress(device, AddressOf(kSecondNetwork, 0, 1));
    const uint32_t interface = AddAddress(farDevice, AddressOf(kSecondNetwork, 0, 2));
    SetDefaultRoute(m_farReceiver, AddressOf(kSecondNetwork, 0, 1), interface);
}

void Dumbbell::InstallFlow(const Scenario& scenario, std::size_t flow, uint64_t seed)
{
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(m_accessRate)));
    link.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("1000000p"));

    link.SetDeviceAttribute("Mtu", UintegerValue(scenario.MtuBytes()));
    const FlowPath path = m_paths[flow];
    const bool isBehind = path == FlowPath::kSecondHop || path == FlowPath::kReverse;
    // Between the senders' router and the receiver.
    const Time linkDelay = path == FlowPath::kSecondHop ? Time(0) : m_bottleneckDelay;
    const double forwardMs = scenario.flows[flow].ForwardMs();
    const Time delay = FromMs(forwardMs) - linkDelay;
    link.SetChannelAttribute("Delay", TimeValue(delay));
    const NetDeviceContainer devices =
        link.Install(m_senders[flow], isBehind ? m_receiver : m_router);
    const auto sender = DynamicCast<PointToPointNetDevice>(devices.Get(0));
    const auto router = DynamicCast<PointToPointNetDevice>(devices.Get(1));
    if (ReturnPath back(scenario.flows[flow], forwardMs, seed); !back.IsConstant())
    {
        PathChannel::Install(
            router,
            sender,
            [back = std::move(back), before = linkDelay.GetNanoSeconds()](
                const Packet&, Nanoseconds sent) mutable { return back.Arrival(sent - before); });
    }
    if (m_policer && path == FlowPath::kReverse)
    {
        throw std::invalid_argument("ns-3 cannot run policer_mbps with a flow of path reverse: its "
                                    "policer does not see ACKs; use the engine native");
    }
    if (m_policer && !isBehind)
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
