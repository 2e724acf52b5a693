#pragma once

#include "envs/model/rows.h"

#include "ns3/nstime.h"
#include "ns3/packet.h"
#include "ns3/point-to-point-net-device.h"
#include "ns3/queue-disc.h"

#include <cstdint>

namespace bbrgym
{

constexpr uint32_t kPppBytes = 2; // of the header that ns-3 puts around a packet

/// Measures the bottleneck's queue and wire.
class LinkMonitor
{
  public:
    /// `framing` is the length of ns-3's frames over that of the scenario's packets. The device's
    /// rate is higher by this factor, so that a full packet takes as long as the scenario says.
    LinkMonitor(ns3::Ptr<ns3::QueueDisc> queueDisc,
                ns3::Ptr<ns3::PointToPointNetDevice> device,
                ns3::Ptr<ns3::PointToPointNetDevice> farDevice,
                double framing);

    void SetRate(double rateMbps);

    /// Counts a packet that was dropped in front of the queue.
    void CountDrop();

    /// What was measured since the last `StartStep`.
    LinkRow GetRow();
    void StartStep();

  private:
    /// Adds the time since the last change, with the queue as recorded, to the averages.
    void Integrate();
    double MeanRateMbps() const;
    double Utilisation() const;

    ns3::Ptr<ns3::PointToPointNetDevice> m_device;
    double m_framing;

    double m_rateMbps = 0.0;
    // What waits in the queue discipline and in the device.
    uint32_t m_packets = 0;
    uint32_t m_bytes = 0;
    bool m_isSending = false;
    double m_sendingRateMbps = 0.0; // of the packet that is being sent, or was the last
    ns3::Time m_lastChange;

    // What the current step has measured.
    ns3::Time m_stepStart;
    ns3::Time m_rateSince;
    double m_earlierRates = 0.0; // Mbit/s x s, before `m_rateSince`
    double m_packetSeconds = 0.0;
    double m_delaySeconds = 0.0;   // queueing delay, integrated over time: s x s
    double m_sendingSeconds = 0.0; // at `m_sendingRateMbps`
    double m_earlierSent = 0.0;    // Mbit/s x s, at other rates before
    uint32_t m_maxPackets = 0;
    double m_maxMs = 0.0;
    uint64_t m_drops = 0;
    uint64_t m_marks = 0;
    uint64_t m_randomLosses = 0;
};

} // namespace bbrgym
