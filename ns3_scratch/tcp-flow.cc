#include "tcp-flow.h"

#include "envs/transport/connection.h"

#include "ns3/boolean.h"
#include "ns3/inet-socket-address.h"
#include "ns3/packet.h"
#include "ns3/rtt-estimator.h"
#include "ns3/simulator.h"
#include "ns3/tcp-bbr.h"
#include "ns3/tcp-cubic.h"
#include "ns3/tcp-l4-protocol.h"
#include "ns3/tcp-linux-reno.h"
#include "ns3/tcp-prr-recovery.h"
#include "ns3/uinteger.h"

#include <algorithm>
#include <optional>
#include <stdexcept>

namespace bbrgym
{

using namespace ns3;

namespace
{

struct StockAlgorithm
{
    const char* name;
    Ptr<TcpCongestionOps> (*make)();
};

const StockAlgorithm kStockAlgorithms[] = {
    {"bbr-stock", [] { return Ptr<TcpCongestionOps>(CreateObject<TcpBbr>()); }},
    {"cubic-stock", [] { return Ptr<TcpCongestionOps>(CreateObject<TcpCubic>()); }},
    {"newreno-stock", [] { return Ptr<TcpCongestionOps>(CreateObject<TcpNewReno>()); }},
};

const StockAlgorithm* FindStockAlgorithm(const std::string& name)
{
    const auto* const found = std::find_if(std::begin(kStockAlgorithms),
                                           std::end(kStockAlgorithms),
                                           [&](const auto& stock) { return name == stock.name; });
    return found == std::end(kStockAlgorithms) ? nullptr : found;
}

/// Room for everything that a flow can have outstanding: neither buffer may limit it
/// (`is_buffer_limited` tells if one does). Not more than that, since ns-3 walks the whole list of
/// sent packets for every packet that it sends.
uint32_t SocketBufferBytes(const Scenario& scenario)
{
    const double bdp = scenario.LargestRateMbps() * 1e6 / 8.0 * scenario.LongestRttSeconds();
    int64_t queued = scenario.QueuePackets();
    for (const auto& link : {scenario.SecondLink(), scenario.ReverseLink()})
    {
        queued += link ? link->QueuePackets() : 0;
    }
    const auto queue = static_cast<double>(queued * scenario.packet_bytes);
    const double bytes =
        8.0 * bdp + 2.0 * queue + 256.0 * static_cast<double>(scenario.packet_bytes);
    return static_cast<uint32_t>(std::min(bytes, 1e9));
}

void Configure(Ptr<TcpSocketBase> socket, const Scenario& scenario)
{
    const uint32_t buffer = SocketBufferBytes(scenario);
    socket->SetAttribute("SegmentSize",
                         UintegerValue(static_cast<uint32_t>(scenario.packet_bytes)));
    socket->SetAttribute("SndBufSize", UintegerValue(buffer));
    socket->SetAttribute("RcvBufSize", UintegerValue(buffer));
    socket->SetAttribute("InitialCwnd", UintegerValue(kInitialCwndPackets));
    socket->SetAttribute("DelAckCount", UintegerValue(Receiver::kAckEvery));
    socket->SetAttribute("DelAckTimeout", TimeValue(NanoSeconds(Receiver::kMaxAckDelay)));
    socket->SetAttribute("ConnTimeout", TimeValue(Seconds(1)));   // RFC 6298, section 2.1
    socket->SetAttribute("MinRto", TimeValue(MilliSeconds(200))); // Linux TCP_RTO_MIN
    socket->SetAttribute("ClockGranularity", TimeValue(MicroSeconds(1)));
    socket->SetAttribute("Sack", BooleanValue(true));
    socket->SetAttribute("Timestamp", BooleanValue(false)); // they round RTTs to 1 ms
    socket->SetAttribute("TcpNoDelay", BooleanValue(true));
    socket->SetAttribute("DataRetries", UintegerValue(1'000'000)); // a flow never gives up
    socket->SetAttribute("ConnCount", UintegerValue(1'000'000));
}

template <typename SocketType>
Ptr<SocketType> MakeSocket(Ptr<Node> node, Ptr<TcpCongestionOps> congestionOps)
{
    const Ptr<TcpL4Protocol> tcp = node->GetObject<TcpL4Protocol>();
    const Ptr<SocketType> socket = CreateObject<SocketType>();
    socket->SetNode(node);
    socket->SetTcp(tcp);
    socket->SetRtt(CreateObject<RttMeanDeviation>());
    socket->SetCongestionControlAlgorithm(congestionOps);
    socket->SetRecoveryAlgorithm(CreateObject<TcpPrrRecovery>());
    tcp->AddSocket(socket);
    return socket;
}

} // namespace

TcpFlow::TcpFlow(const Scenario& scenario,
                 std::size_t index,
                 Dumbbell& dumbbell,
                 uint64_t seed,
                 std::function<void()> onComplete)
    : FlowRun(scenario, index, seed, std::move(onComplete)),
      m_receiverAddress(dumbbell.GetReceiverAddress(index),
                        static_cast<uint16_t>(kFirstReceiverPort + index))
{
    if (GetFlow().ecn)
    {
        throw std::invalid_argument("ns-3 with transport tcp cannot run a flow with ecn: its TCP "
                                    "reports one mark per round trip; transport quic and the "
                                    "native engine can");
    }
    const Ptr<Node> sender = dumbbell.GetSender(index);
    if (const StockAlgorithm* stock = FindStockAlgorithm(GetFlow().algorithm))
    {
        m_sender = MakeSocket<SenderSocket>(sender, stock->make());
        m_sender->SetRateOps(CreateObject<StockRateOps>(m_recorder));
    }
    else
    {
        CheckFlowController(GetFlow());
        m_sender = MakeSocket<SenderSocket>(sender, CreateObject<TcpNewReno>());
        m_rateOps = CreateObject<LinuxRateOps>(m_recorder);
        m_congestionOps = CreateObject<ControllerCongestionOps>(m_rateOps, m_sender->GetTxBuffer());
        m_sender->SetCongestionControlAlgorithm(m_congestionOps);
        m_sender->SetRateOps(m_rateOps);
        m_sender->GetState()->m_paceInitialWindow = true;
        m_sender->SetPace(PeekPointer(m_congestionOps));
    }
    m_sender->SetRecorder(&m_recorder);
    Configure(m_sender, scenario);

    const Ptr<ReceiverSocket> listener =
        MakeSocket<ReceiverSocket>(dumbbell.GetReceiver(index), CreateObject<TcpNewReno>());
    listener->SetArrivalCallback(MakeCallback(&FlowRecorder::OnArrived, &m_recorder));
    Configure(listener, scenario);
    listener->Bind(InetSocketAddress(Ipv4Address::GetAny(), m_receiverAddress.GetPort()));
    listener->Listen();
    listener->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(),
                                MakeCallback(&TcpFlow::OnAccepted, this));
    m_listener = listener;
}

void TcpFlow::Connect()
{
    m_sender->SetConnectCallback(MakeCallback(&TcpFlow::OnConnected, this),
                                 MakeNullCallback<void, Ptr<Socket>>());
    m_sender->Bind();
    m_sender->Connect(m_receiverAddress);
}

void TcpFlow::Silence()
{
    m_write.Cancel();
    m_sender->SetHasMoreData(false);
    m_sender->Silence();
}

Controller* TcpFlow::GetController()
{
    return m_congestionOps ? m_congestionOps->GetController() : nullptr;
}

void TcpFlow::OnConnected(Ptr<Socket> /* socket */)
{
    if (HasEnded())
    {
        return;
    }
    const Connection connection =
        GetConnection(m_sender->GetState()->m_lastRtt.Get().GetNanoSeconds());
    m_source = OpenSource(connection);
    if (m_congestionOps)
    {
        m_congestionOps->Start(MakeFlowController(GetFlow(), connection, GetGains()),
                               m_sender->GetState());
    }
    m_sender->SetSendCallback(MakeCallback(&TcpFlow::FillBuffer, this));
    Write();
}

void TcpFlow::Write()
{
    m_sender->SetHasMoreData(true);
    FillBuffer(m_sender, m_sender->GetTxAvailable());
}

void TcpFlow::FillBuffer(Ptr<Socket> socket, uint32_t /* available */)
{
    while (!HasEnded() && socket->GetTxAvailable() >= GetPacketBytes())
    {
        uint64_t bytes = GetPacketBytes();
        if (GetFlow().size_bytes)
        {
            const auto size = static_cast<uint64_t>(*GetFlow().size_bytes);
            bytes = std::min(bytes, size - m_writtenBytes);
        }
        if (bytes == 0)
        {
            m_sender->SetHasMoreData(false);
            return;
        }
        if (m_source)
        {
            if (const Time pause = NanoSeconds(m_source->next()) - Simulator::Now();
                pause.IsStrictlyPositive())
            {
                m_sender->SetHasMoreData(false);
                m_write.Cancel();
                m_write = Simulator::Schedule(pause, &TcpFlow::Write, this);
                return;
            }
            m_source->Advance();
            m_sender->CheckAppLimited();
        }
        socket->Send(Create<Packet>(static_cast<uint32_t>(bytes)));
        m_writtenBytes += bytes;
    }
}

void TcpFlow::OnAccepted(Ptr<Socket> socket, const Address& /* from */)
{
    socket->SetRecvCallback(MakeCallback(&TcpFlow::OnReadable, this));
}

void TcpFlow::OnReadable(Ptr<Socket> socket)
{
    while (const Ptr<Packet> packet = socket->Recv())
    {
        if (packet->GetSize() == 0)
        {
            return;
        }
        m_recorder.OnReceived(packet->GetSize());
    }
    OnReceived(m_recorder.GetCounts().receiver.received);
}

FlowCounts TcpFlow::StartSamples()
{
    m_recorder.StartStep();
    return m_recorder.GetCounts();
}

FlowRow TcpFlow::GetRow(Time stepStart) const
{
    const Ptr<TcpSocketState> state = m_sender->GetState();
    const auto pacingRate = static_cast<BitsPerSecond>(state->m_pacingRate.Get().GetBitRate());
    return MakeFlowRow(
        GetStep(stepStart, (Simulator::Now() - stepStart).GetSeconds()),
        {
            .now = m_recorder.GetCounts(),
            .rtts = m_recorder.GetRttSamples(),
            .in_flight = m_sender->GetTxBuffer()->BytesInFlight(),
            .cwnd = state->m_cWnd.Get(),
            .pacing_rate = state->m_pacing ? std::optional(pacingRate) : std::nullopt,
            .is_buffer_limited = m_recorder.IsBufferLimited(),
            .delivery = GetDelivery(),
            .controller = m_congestionOps ? m_congestionOps->GetController() : nullptr,
        });
}

} // namespace bbrgym
