#pragma once

#include "dumbbell.h"
#include "flow.h"

#include "envs/model/scenario.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace bbrgym
{

/// Makes a flow over some transport.
using FlowMaker = std::unique_ptr<FlowRun> (*)(const Scenario& scenario,
                                               std::size_t index,
                                               Dumbbell& dumbbell,
                                               uint64_t seed,
                                               std::function<void()> onComplete);

/// One Scenario in ns-3, stepped by duration. A process can have only one, because ns-3's
/// simulator is global.
class Simulation
{
  public:
    /// `transport`: `tcp` or `quic`, for all flows. `accessMbps`: the lowest rate of the links
    /// other than the bottleneck. Throws std::invalid_argument for an unknown transport.
    explicit Simulation(const std::string& transport, double accessMbps);
    ~Simulation();
    Simulation(const Simulation&) = delete;
    Simulation& operator=(const Simulation&) = delete;

    /// Starts the scenario at time 0. Throws std::invalid_argument if it cannot be simulated.
    void Reset(Scenario scenario, uint64_t seed);

    /// Sets the gains of an agent's flow. Throws std::out_of_range or std::invalid_argument.
    void SetGains(int64_t flow, double cwndGain, double pacingGain);

    /// Simulates for a duration, or to the end. Throws std::logic_error before the first reset.
    void Step(int64_t durationNs);

    /// The rows of the last step: time in s, is over, is complete, then the row of the link and
    /// the row of each flow.
    std::vector<double> Rows();

  private:
    void Clear();
    bool IsComplete() const;
    bool IsOver() const;

    FlowMaker m_makeFlow;
    double m_accessMbps;
    Scenario m_scenario;
    std::unique_ptr<Dumbbell> m_dumbbell;
    std::vector<std::unique_ptr<FlowRun>> m_flows;
    ns3::Time m_end;
    std::vector<double> m_rows;
};

} // namespace bbrgym
