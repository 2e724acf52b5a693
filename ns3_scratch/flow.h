#pragma once

#include "controller-congestion-ops.h"
#include "dumbbell.h"
#include "flow-recorder.h"
#include "receiver-socket.h"
#include "sender-socket.h"

#include "envs/native/scenario.h"

#include "ns3/inet-socket-address.h"
#include "ns3/socket.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace bbrgym
{

/// One flow of a Scenario in ns-3: a source, its TCP, and the receiver.
class FlowRun
{
  public:
    /// `onComplete` is called when a finite flow has delivered all its bytes.
    FlowRun(const Scenario& scenario,
            std::size_t index,
            Dumbbell& dumbbell,
            FlowRates& flowRates,
            uint64_t seed,
            std::function<void()> onComplete);

    FlowRun(const FlowRun&) = delete;
    FlowRun& operator=(const FlowRun&) = delete;

    /// Throws std::invalid_argument if the flow's controller is not steered from outside.
    void Steer(double cwndGain, double pacingGain);

    bool IsComplete() const
    {
        return m_isComplete;
    }

    /// Appends the row of the step that began at `stepStart`, in the order of `FlowColumns`.
    void AppendRow(ns3::Time stepStart, std::vector<double>& row) const;
    void StartStep();

  private:
    void Begin();
    void End();
    void OnConnected(ns3::Ptr<ns3::Socket> socket);
    void FillBuffer(ns3::Ptr<ns3::Socket> socket, uint32_t available);
    void OnAccepted(ns3::Ptr<ns3::Socket> socket, const ns3::Address& from);
    void OnReadable(ns3::Ptr<ns3::Socket> socket);
    double ActiveShare(ns3::Time stepStart) const;

    const Flow& m_flow;
    uint32_t m_packetBytes;
    uint64_t m_seed;
    ns3::InetSocketAddress m_receiverAddress;
    std::function<void()> m_onComplete;

    FlowRecorder m_recorder;
    ns3::Ptr<LinuxRateOps> m_rateOps; // null with ns-3's own congestion controls
    ns3::Ptr<ControllerCongestionOps> m_congestionOps;
    ns3::Ptr<SenderSocket> m_sender;
    ns3::Ptr<ns3::Socket> m_listener;

    // Gains that came before the connection was there to take them.
    bool m_isSteered = false;
    double m_cwndGain = 0.0;
    double m_pacingGain = 0.0;

    uint64_t m_writtenBytes = 0;
    bool m_hasBegun = false;
    bool m_isComplete = false;
    ns3::Time m_end = ns3::Time::Max();
    FlowRecorder::Counts m_atStepStart;
};

/// The columns of a flow's row, in order: the same as `bbrgym.envs.columns.FLOW_COLUMNS` (a test
/// compares).
std::vector<std::string> FlowColumns();

/// The congestion controls that ns-3 brings itself, by our names.
std::vector<std::string> StockAlgorithms();

} // namespace bbrgym
