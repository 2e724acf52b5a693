#include "envs/native/batch.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bbrgym {

Batch::Batch(std::size_t networks, std::size_t max_flows, std::size_t threads, double packets_worth_threads)
    : networks_(networks),
      max_flows_(max_flows),
      threads_(std::min(threads, networks)),
      packets_worth_threads_(packets_worth_threads),
      flow_rows_(networks * max_flows, EmptyRow<FlowRow>()),
      link_rows_(networks, EmptyRow<LinkRow>()),
      times_s_(networks, 0.0),
      is_over_(networks, 1),
      is_complete_(networks, 0) {}

void Batch::Reset(std::size_t index, std::shared_ptr<const Scenario> scenario, std::uint64_t seed) {
  if (scenario->flows.size() > max_flows_) {
    throw std::invalid_argument("a scenario must have at most max_flows = " + std::to_string(max_flows_) +
                                " flows, got " + std::to_string(scenario->flows.size()));
  }
  networks_.at(index).Reset(std::move(scenario), seed);
  std::fill_n(flow_rows_.begin() + static_cast<std::ptrdiff_t>(index * max_flows_), max_flows_, EmptyRow<FlowRow>());
  WriteRows(index);
}

void Batch::SetGains(std::size_t index, std::int64_t flow, double cwnd_gain, double pacing_gain) {
  networks_.at(index).SetGains(flow, cwnd_gain, pacing_gain);
}

void Batch::Step(const std::int64_t* durations_ns) {
  const auto step = [this, durations_ns](std::size_t index) {
    if (durations_ns[index] <= 0 || networks_[index].scenario().flows.empty()) return;
    networks_[index].Step(durations_ns[index]);
    WriteRows(index);
  };
  if (last_packets_ < packets_worth_threads_) {
    for (std::size_t index = 0; index < networks_.size(); ++index) step(index);
  } else {
    threads_.ForEach(networks_.size(), step);
  }
  last_packets_ = SentPackets();
}

std::map<std::size_t, std::string> Batch::Faults() const {
  std::map<std::size_t, std::string> faults;
  for (std::size_t index = 0; index < networks_.size(); ++index) {
    if (std::string fault = networks_[index].Fault(); !fault.empty()) faults[index] = std::move(fault);
  }
  return faults;
}

double Batch::SentPackets() const {
  double packets = 0.0;
  for (std::size_t index = 0; index < networks_.size(); ++index) {
    for (std::size_t flow = 0; flow < networks_[index].scenario().flows.size(); ++flow) {
      packets += flow_rows_[index * max_flows_ + flow].sent_packets;
    }
  }
  return packets;
}

void Batch::Run(const Rollout& rollout) {
  for (std::size_t index = 0; index < networks_.size(); ++index) {
    for (std::size_t agent = 0; agent < rollout.agents; ++agent) {
      networks_[index].scenario().CheckSteerable(rollout.flows[index * rollout.agents + agent]);
    }
  }
  // Fast links have the most packets. They come first, so that no thread waits long for the last network.
  std::vector<std::size_t> order(networks_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [this](std::size_t i) { return networks_[i].scenario().rate_mbps; });
  threads_.ForEach(order.size(), [&](std::size_t i) { RunEpisode(order[i], rollout); });
}

void Batch::RunEpisode(std::size_t index, const Rollout& rollout) {
  Network& network = networks_[index];
  const FlowRow* rows = flow_rows_.data() + index * max_flows_;
  PolicyNetwork::Scratch scratch;
  if (rollout.policy) scratch = rollout.policy->MakeScratch();
  for (std::int64_t& next = rollout.next_steps[index]; next < static_cast<std::int64_t>(rollout.steps);) {
    const auto step = static_cast<std::size_t>(next++);
    rollout.Decide(step, index, size(), rows, scratch);
    for (std::size_t agent = index * rollout.agents; agent < (index + 1) * rollout.agents; ++agent) {
      network.SetGains(rollout.flows[agent], rollout.gains[agent], rollout.gains[size() * rollout.agents + agent]);
    }
    network.Step(rollout.durations_ns[index]);
    WriteRows(index);
    rollout.Observe(step, index, size(), rows);
    const std::size_t place = step * size() + index;
    std::copy_n(rows, max_flows_, rollout.flow_rows + place * max_flows_);
    rollout.link_rows[place] = link_rows_[index];
    rollout.times_s[place] = times_s_[index];
    rollout.is_over[place] = is_over_[index];
    rollout.is_complete[place] = is_complete_[index];
    if (is_over_[index]) return;
  }
}

void Batch::WriteRows(std::size_t index) {
  Network& network = networks_[index];
  link_rows_[index] = network.GetLinkRow();
  for (std::size_t flow = 0; flow < network.scenario().flows.size(); ++flow) {
    flow_rows_[index * max_flows_ + flow] = network.GetFlowRow(flow);
  }
  times_s_[index] = static_cast<double>(network.now()) / 1e9;
  is_over_[index] = network.IsOver() ? 1 : 0;
  is_complete_[index] = network.IsComplete() ? 1 : 0;
}

}  // namespace bbrgym
