#include "simulation.h"

#include "quic-flow.h"
#include "tcp-flow.h"

#include "envs/model/episode_seeds.h"
#include "envs/transport/connection.h"

#include "ns3/rng-seed-manager.h"
#include "ns3/simulator.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>

namespace bbrgym
{

using namespace ns3;

namespace
{

template <typename FlowType>
std::unique_ptr<FlowRun> Make(const Scenario& scenario,
                              std::size_t index,
                              Dumbbell& dumbbell,
                              uint64_t seed,
                              std::function<void()> onComplete)
{
    return std::make_unique<FlowType>(scenario, index, dumbbell, seed, std::move(onComplete));
}

template <typename Row>
void Append(const Row& row, std::vector<double>& to)
{
    const auto values = ValuesOf(row);
    to.insert(to.end(), values.begin(), values.end());
}

struct Transport
{
    const char* name;
    FlowMaker make;
};

const Transport kTransports[] = {
    {"tcp", &Make<TcpFlow>},
    {"quic", &Make<QuicFlow>},
};

} // namespace

Simulation::Simulation(const std::string& transport, double accessMbps) : m_accessMbps(accessMbps)
{
    const auto* const found =
        std::find_if(std::begin(kTransports), std::end(kTransports), [&](const auto& known) {
            return transport == known.name;
        });
    if (found == std::end(kTransports))
    {
        std::string known;
        for (const Transport& entry : kTransports)
        {
            known += std::string(known.empty() ? "" : ", ") + entry.name;
        }
        throw std::invalid_argument("unknown transport '" + transport + "'; known: " + known);
    }
    m_makeFlow = found->make;
}

Simulation::~Simulation()
{
    Clear();
}

void Simulation::Reset(Scenario scenario, uint64_t seed)
{
    Clear();
    scenario.Check();
    m_scenario = std::move(scenario);
    m_end = NanoSeconds(static_cast<int64_t>(m_scenario.duration_s * 1e9));
    // ns-3's own algorithms draw from its random streams: one fixed seed, and one run per seed of
    // ours, since only runs are guaranteed not to overlap. Our own code has generators of its own.
    RngSeedManager::SetSeed(1);
    RngSeedManager::SetRun(seed);
    const EpisodeSeeds seeds(seed, m_scenario.flows.size());
    m_dumbbell = std::make_unique<Dumbbell>(m_scenario, seeds.link, seeds.flows, m_accessMbps);
    for (std::size_t i = 0; i < m_scenario.flows.size(); ++i)
    {
        m_flows.push_back(m_makeFlow(m_scenario, i, *m_dumbbell, seeds.flows[i], [this] {
            if (IsComplete())
            {
                Simulator::Stop();
            }
        }));
        m_flows.back()->Schedule();
    }
    Step(0);
}

void Simulation::SetGains(int64_t flow, double cwndGain, double pacingGain)
{
    m_scenario.CheckSteerable(flow);
    m_flows[static_cast<std::size_t>(flow)]->SetGains(cwndGain, pacingGain);
}

void Simulation::Step(int64_t durationNs)
{
    if (!m_dumbbell)
    {
        throw std::logic_error("step before the first reset");
    }
    const Time start = Simulator::Now();
    m_dumbbell->StartStep();
    for (const auto& flow : m_flows)
    {
        flow->StartStep();
    }
    const Time end = Min(m_end, start + NanoSeconds(std::max<int64_t>(durationNs, 0)));
    if (!IsComplete() && end > start)
    {
        Simulator::Stop(end - start);
        Simulator::Run();
    }

    m_rows.clear();
    m_rows.push_back(Simulator::Now().GetSeconds());
    m_rows.push_back(IsOver() ? 1.0 : 0.0);
    m_rows.push_back(IsComplete() ? 1.0 : 0.0);
    Append(m_dumbbell->GetLinkRow(), m_rows);
    for (std::size_t i = 0; i < m_flows.size(); ++i)
    {
        Append(m_flows[i]->GetRow(start), m_rows);
        if (const std::string fault = FaultOf(m_flows[i]->GetController(), i); !fault.empty())
        {
            throw std::runtime_error(fault);
        }
    }
}

std::vector<double> Simulation::Rows()
{
    return m_rows;
}

void Simulation::Clear()
{
    if (!m_dumbbell)
    {
        return;
    }
    // Events and nodes first: they point to flows and dumbbell.
    Simulator::Destroy();
    m_flows.clear();
    m_dumbbell.reset();
    m_rows.clear();
}

bool Simulation::IsComplete() const
{
    return std::all_of(
        m_flows.begin(), m_flows.end(), [](const auto& flow) { return flow->IsComplete(); });
}

bool Simulation::IsOver() const
{
    return IsComplete() || Simulator::Now() >= m_end;
}

} // namespace bbrgym
