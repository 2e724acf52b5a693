#pragma once

#include <cstdint>

#include "baselines/cc/random.h"
#include "baselines/cc/units.h"
#include "envs/native/packet.h"
#include "envs/native/ring.h"
#include "envs/native/scenario.h"

namespace bbrgym {

/// The shared link and its droptail buffer: packets in, packets out in the same order, and what it measures.
class Bottleneck {
 public:
  static constexpr Nanoseconds kNever = INT64_MAX;

  struct Item {
    DataPacket packet;
    std::uint32_t flow = 0;
  };

  /// What a step measured, in the order of `LinkColumns`.
  struct Step {
    double rate_mbps;
    double utilisation;
    double queue_mean_packets;
    double queue_max_packets;
    double queue_mean_ms;
    double queue_max_ms;
    double drops;
    double random_losses;
  };

  void Reset(const Scenario& scenario, std::uint64_t seed);
  void SetRate(Nanoseconds now, double rate_mbps);

  /// A packet arrives: it is sent, waits, or finds no room.
  void Enqueue(Nanoseconds now, const DataPacket& packet, std::uint32_t flow);

  /// When the packet that is being sent has left; `kNever` if none is.
  Nanoseconds departure() const { return departure_; }
  /// Ends its sending. Returns false if it is lost on the way.
  bool Depart(Item& item);

  void StartStep(Nanoseconds now);
  Step GetStep(Nanoseconds now);

 private:
  void Integrate(Nanoseconds now);
  void StartSending(Nanoseconds now);
  Nanoseconds TimeToSend(std::int32_t bytes) const {
    return static_cast<Nanoseconds>(static_cast<double>(bytes) * ns_per_byte_);
  }

  Ring<Item> queue_;  // the first one is being sent
  std::size_t capacity_ = 1;
  std::int32_t header_bytes_ = 0;
  std::uint64_t loss_threshold_ = 0;
  Random random_{1};
  double rate_mbps_ = 0.0;
  double ns_per_byte_ = 0.0;
  Nanoseconds departure_ = kNever;

  // Sums since the step began; times in ns.
  Bytes waiting_bytes_ = 0;
  Nanoseconds step_start_ = 0;
  Nanoseconds last_change_ = 0;
  double packet_ns_ = 0.0;
  Nanoseconds sending_ns_ = 0;
  std::size_t most_packets_ = 0;
  double delay_ns_ns_ = 0.0;
  double most_delay_ns_ = 0.0;
  std::uint64_t drops_ = 0;
  std::uint64_t random_losses_ = 0;
};

}  // namespace bbrgym
