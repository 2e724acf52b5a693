#pragma once

#include "dumbbell.h"
#include "flow.h"

#include "envs/transport/handshake.h"
#include "envs/transport/receiver.h"
#include "envs/transport/sender.h"

#include "ns3/event-id.h"
#include "ns3/socket.h"

#include <functional>
#include <memory>
#include <vector>

namespace bbrgym
{

/// Calls back at a time that often changes. A change to a later time costs nothing: the event stays
/// where it is, and reschedules itself if it fires too early.
class Alarm
{
  public:
    explicit Alarm(std::function<void()> onDue);

    /// Replaces the time: in ns of the simulation, or `kNever`.
    void Set(Nanoseconds due);

  private:
    void Schedule();
    void OnEvent();

    std::function<void()> m_onDue;
    Nanoseconds m_due = kNever;
    Nanoseconds m_eventTime = kNever;
    ns3::EventId m_event;
};

/// A flow over the transport of the native engine (`Sender`, `Receiver`), carried by ns-3's UDP:
/// the same controllers and the same transport in ns-3's network.
class QuicFlow : public FlowRun
{
  public:
    QuicFlow(const Scenario& scenario,
             std::size_t index,
             Dumbbell& dumbbell,
             uint64_t seed,
             std::function<void()> onComplete);

    FlowRow GetRow(ns3::Time stepStart) const override;

  private:
    void Connect() override;
    void Silence() override;
    Controller* GetController() override;
    FlowCounts StartSamples() override;

    void SendHello();
    void OnConnected(Nanoseconds rtt);
    /// Sends what may leave now and sets the alarm for the rest.
    void Pump();
    void OnTimer();
    void OnAck(const AckPacket& ack);
    void SendAck();
    void OnAnswers(ns3::Ptr<ns3::Socket> socket);
    void OnPackets(ns3::Ptr<ns3::Socket> socket);
    void OnPacket(const DataPacket& packet);

    ns3::Ptr<ns3::Socket> m_senderSocket;
    ns3::Ptr<ns3::Socket> m_receiverSocket;

    std::unique_ptr<Sender> m_sender; // null until the handshake is done
    Receiver m_receiver;
    Nanoseconds m_helloTimeout;
    ns3::EventId m_helloTimer;
    Alarm m_senderAlarm;
    Alarm m_receiverAlarm;
};

} // namespace bbrgym
