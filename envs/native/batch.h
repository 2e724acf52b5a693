#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "envs/model/rows.h"
#include "envs/native/network.h"
#include "envs/native/rollout.h"
#include "envs/native/thread_pool.h"

namespace bbrgym {

/// Many networks stepped together. Their rows lie in arrays that are allocated once and never move.
///
/// One thread at a time simulates a network, and networks share nothing. What a network does depends neither on the
/// number of networks nor on the number of threads.
class Batch {
 public:
  /// A packet takes 60 to 100 ns, and waking a thread tens of us.
  static constexpr double kPacketsWorthThreads = 3'000.0;

  /// `max_flows`: the most flows that any scenario will have; rows beyond a scenario's flows are NaN.
  /// A step of fewer packets than `packets_worth_threads` is the work of one thread.
  Batch(std::size_t networks, std::size_t max_flows, std::size_t threads,
        double packets_worth_threads = kPacketsWorthThreads);

  /// Starts a scenario in one network. Throws std::invalid_argument or std::out_of_range.
  void Reset(std::size_t index, std::shared_ptr<const Scenario> scenario, std::uint64_t seed);
  void SetGains(std::size_t index, std::int64_t flow, double cwnd_gain, double pacing_gain);

  /// Steps every network by its own duration in ns; a duration <= 0 leaves a network and its rows as they are.
  void Step(const std::int64_t* durations_ns);

  /// Makes the steps of a rollout in every network, to the last one or to the end of its episode. The batch's own rows
  /// are then those of each network's last step. Throws std::out_of_range or std::invalid_argument for a flow that is
  /// no agent's.
  void Run(const Rollout& rollout);

  /// `Network::Fault` of each network that has one, by its index.
  std::map<std::size_t, std::string> Faults() const;

  std::size_t size() const { return networks_.size(); }
  std::size_t max_flows() const { return max_flows_; }

  // Shape (size, max_flows) for the rows of flows, (size,) for everything else.
  std::vector<FlowRow>& flow_rows() { return flow_rows_; }
  std::vector<LinkRow>& link_rows() { return link_rows_; }
  std::vector<double>& times_s() { return times_s_; }
  std::vector<std::uint8_t>& is_over() { return is_over_; }
  std::vector<std::uint8_t>& is_complete() { return is_complete_; }

 private:
  void WriteRows(std::size_t index);
  void RunEpisode(std::size_t index, const Rollout& rollout);
  double SentPackets() const;

  std::vector<Network> networks_;
  std::size_t max_flows_;
  ThreadPool threads_;
  double packets_worth_threads_;
  double last_packets_ = std::numeric_limits<double>::infinity();  // sent in the last step
  std::vector<FlowRow> flow_rows_;
  std::vector<LinkRow> link_rows_;
  std::vector<double> times_s_;
  std::vector<std::uint8_t> is_over_;
  std::vector<std::uint8_t> is_complete_;
};

}  // namespace bbrgym
