#pragma once

#include "baselines/cc/controller.h"
#include "envs/model/scenario.h"
#include "envs/transport/delivery.h"
#include "envs/transport/flow_row.h"

#include "ns3/nstime.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace bbrgym
{

constexpr uint16_t kFirstReceiverPort = 5001; // one port per flow

/// One flow of a Scenario in ns-3, over any transport: when it begins and ends, its gains, its row.
class FlowRun
{
  public:
    /// `onComplete` is called when a finite flow has delivered all its bytes. Throws
    /// std::invalid_argument for an algorithm or parameter that does not exist.
    FlowRun(const Scenario& scenario,
            std::size_t index,
            uint64_t seed,
            std::function<void()> onComplete);
    virtual ~FlowRun() = default;
    FlowRun(const FlowRun&) = delete;
    FlowRun& operator=(const FlowRun&) = delete;

    /// Schedules its start and stop; called once.
    void Schedule();

    /// Sets the gains of an agent's flow.
    void SetGains(double cwndGain, double pacingGain);

    bool IsComplete() const
    {
        return m_delivery.IsComplete();
    }

    void StartStep()
    {
        m_delivery.StartStep();
        m_before = StartSamples();
    }

    /// The row of the step that began at `stepStart`.
    virtual FlowRow GetRow(ns3::Time stepStart) const = 0;

    /// Null until the handshake is done.
    virtual Controller* GetController() = 0;

  protected:
    /// Begins the handshake.
    virtual void Connect() = 0;
    /// Ends sending for good, as if the process had ended.
    virtual void Silence() = 0;
    /// Starts the RTT samples of a step; returns the totals so far.
    virtual FlowCounts StartSamples() = 0;

    /// The connection after a handshake that took `rtt`.
    Connection GetConnection(Nanoseconds rtt) const;

    /// The connection is open: its application begins. Returns when it writes; nothing if all data
    /// is there at once.
    std::optional<AppSource> OpenSource(const Connection& connection);

    const Delivery& GetDelivery() const
    {
        return m_delivery;
    }

    /// The gains that were set before, if any.
    const std::optional<Gains>& GetGains() const
    {
        return m_gains;
    }

    /// Notes how many bytes the receiver has in order; a finite flow ends with the last one.
    void OnReceived(Bytes bytes);

    const Flow& GetFlow() const
    {
        return m_flow;
    }

    uint32_t GetPacketBytes() const
    {
        return m_packetBytes;
    }

    bool HasEnded() const
    {
        return m_end != ns3::Time::Max();
    }

    /// The step that began at `stepStart` and lasts `seconds`.
    FlowStep GetStep(ns3::Time stepStart, double seconds) const;

  private:
    void Begin();
    void End();

    const Flow& m_flow;
    uint32_t m_packetBytes;
    uint64_t m_seed;
    std::function<void()> m_onComplete;

    std::optional<Gains> m_gains;
    bool m_hasBegun = false;
    ns3::Time m_end = ns3::Time::Max();
    Delivery m_delivery;
    FlowCounts m_before; // at the start of the step
};

} // namespace bbrgym
