#include "quic-flow.h"

#include "quic-header.h"

#include "envs/transport/connection.h"

#include "ns3/inet-socket-address.h"
#include "ns3/node.h"
#include "ns3/packet.h"
#include "ns3/simulator.h"
#include "ns3/udp-socket-factory.h"

#include <algorithm>
#include <utility>

namespace bbrgym
{

using namespace ns3;

namespace
{

Nanoseconds Now()
{
    return Simulator::Now().GetNanoSeconds();
}

void Send(Ptr<Socket> socket, const QuicHeader& header, uint32_t payload = 0)
{
    const Ptr<Packet> packet = Create<Packet>(payload);
    packet->AddHeader(header);
    socket->Send(packet);
}

/// The ECN field of the IP header that a packet came with.
Ecn EcnOf(Ptr<Packet> packet)
{
    SocketIpTosTag tos;
    return packet->RemovePacketTag(tos) ? static_cast<Ecn>(tos.GetTos() & 3U) : Ecn::kNotEct;
}

} // namespace

Alarm::Alarm(std::function<void()> onDue) : m_onDue(std::move(onDue))
{
}

void Alarm::Set(Nanoseconds due)
{
    m_due = due;
    if (m_due < m_eventTime)
    {
        m_event.Cancel();
        Schedule();
    }
}

void Alarm::Schedule()
{
    m_eventTime = m_due;
    m_event = Simulator::Schedule(NanoSeconds(m_due - Now()), &Alarm::OnEvent, this);
}

void Alarm::OnEvent()
{
    m_eventTime = kNever;
    if (m_due > Now())
    {
        if (m_due != kNever)
        {
            Schedule();
        }
        return;
    }
    m_due = kNever;
    m_onDue();
}

QuicFlow::QuicFlow(const Scenario& scenario,
                   std::size_t index,
                   Dumbbell& dumbbell,
                   uint64_t seed,
                   std::function<void()> onComplete)
    : FlowRun(scenario, index, seed, std::move(onComplete)), m_helloTimeout(kFirstHelloTimeout),
      m_senderAlarm([this] { OnTimer(); }), m_receiverAlarm([this] { SendAck(); })
{
    CheckFlowController(GetFlow());

    const auto port = static_cast<uint16_t>(kFirstReceiverPort + index);
    m_receiverSocket =
        Socket::CreateSocket(dumbbell.GetReceiver(index), UdpSocketFactory::GetTypeId());
    m_receiverSocket->Bind(InetSocketAddress(Ipv4Address::GetAny(), port));
    m_receiverSocket->SetRecvCallback(MakeCallback(&QuicFlow::OnPackets, this));
    m_receiverSocket->SetIpRecvTos(GetFlow().ecn.has_value());
    m_senderSocket = Socket::CreateSocket(dumbbell.GetSender(index), UdpSocketFactory::GetTypeId());
    m_senderSocket->Bind();
    m_senderSocket->Connect(InetSocketAddress(dumbbell.GetReceiverAddress(index), port));
    m_senderSocket->SetRecvCallback(MakeCallback(&QuicFlow::OnAnswers, this));
}

Controller* QuicFlow::GetController()
{
    return m_sender ? &m_sender->controller() : nullptr;
}

void QuicFlow::Connect()
{
    SendHello();
}

void QuicFlow::SendHello()
{
    Send(m_senderSocket, QuicHeader::Hello(Now()));
    m_helloTimer = Simulator::Schedule(NanoSeconds(m_helloTimeout), &QuicFlow::SendHello, this);
    m_helloTimeout = NextHelloTimeout(m_helloTimeout);
}

void QuicFlow::OnConnected(Nanoseconds rtt)
{
    if (HasEnded() || m_sender)
    {
        return;
    }
    m_helloTimer.Cancel();
    m_senderSocket->SetIpTos(static_cast<uint8_t>(GetFlow().Ect()));
    const Connection connection = GetConnection(rtt);
    OpenSource(connection);
    m_sender = MakeSender(GetFlow(), connection, GetGains(), Now());
    Pump();
}

void QuicFlow::Silence()
{
    m_helloTimer.Cancel();
    if (m_sender)
    {
        m_sender->Stop();
    }
}

void QuicFlow::Pump()
{
    DataPacket packet;
    while (m_sender->NextPacket(Now(), packet))
    {
        Send(m_senderSocket, QuicHeader::Data(packet), static_cast<uint32_t>(packet.bytes));
    }
    m_senderAlarm.Set(m_sender->NextTimer());
}

void QuicFlow::OnTimer()
{
    m_sender->OnTimer(Now());
    Pump();
}

void QuicFlow::OnAck(const AckPacket& ack)
{
    m_sender->OnAck(Now(), ack);
    Pump();
}

void QuicFlow::OnAnswers(Ptr<Socket> socket)
{
    while (const Ptr<Packet> packet = socket->Recv())
    {
        QuicHeader header;
        packet->RemoveHeader(header);
        if (header.GetKind() == QuicHeader::Kind::kAnswer)
        {
            OnConnected(Now() - header.GetTime());
        }
        else
        {
            OnAck(header.GetAck());
        }
    }
}

void QuicFlow::OnPackets(Ptr<Socket> socket)
{
    Address from;
    while (const Ptr<Packet> packet = socket->RecvFrom(from))
    {
        QuicHeader header;
        packet->RemoveHeader(header);
        if (header.GetKind() == QuicHeader::Kind::kHello)
        {
            socket->Connect(from);
            Send(socket, QuicHeader::Answer(header));
            continue;
        }
        OnPacket({.number = header.GetNumber(),
                  .segment = header.GetSegment(),
                  .bytes = static_cast<int32_t>(packet->GetSize()),
                  .ecn = EcnOf(packet)});
    }
}

void QuicFlow::OnPacket(const DataPacket& packet)
{
    if (m_receiver.OnPacket(Now(), packet))
    {
        SendAck();
    }
    m_receiverAlarm.Set(m_receiver.AckDue());
    OnReceived(m_receiver.counts().received);
}

void QuicFlow::SendAck()
{
    AckPacket ack;
    m_receiver.WriteAck(ack);
    Send(m_receiverSocket, QuicHeader::Ack(ack));
}

FlowCounts QuicFlow::StartSamples()
{
    if (m_sender)
    {
        m_sender->StartStep();
    }
    return CountsOf(m_sender.get(), m_receiver);
}

FlowRow QuicFlow::GetRow(Time stepStart) const
{
    const int64_t ns = (Simulator::Now() - stepStart).GetNanoSeconds();
    return MakeFlowRow(GetStep(stepStart, static_cast<double>(ns) / 1e9),
                       ReadingOf(m_sender.get(), m_receiver, GetDelivery()));
}

} // namespace bbrgym
