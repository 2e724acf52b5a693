#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "baselines/cc/units.h"
#include "envs/model/loss_model.h"
#include "envs/model/packet.h"
#include "envs/model/policer.h"
#include "envs/model/queue_discipline.h"
#include "envs/model/ring.h"
#include "envs/model/rows.h"
#include "envs/model/scenario.h"

namespace bbrgym {

/// The shared link and its buffer, with the queue discipline of the scenario. It measures its row.
class Bottleneck {
 public:
  using Item = QueuedPacket;

  Bottleneck() = default;
  Bottleneck(const Bottleneck&) = delete;  // the discipline refers to its tally
  Bottleneck& operator=(const Bottleneck&) = delete;

  /// `dropped` gets every packet that the queue drops, if it is not null.
  void Reset(const Scenario& scenario, std::uint64_t seed, std::vector<Item>* dropped = nullptr);
  void SetRate(Nanoseconds now, double rate_mbps);
  void SetLoss(double loss) { loss_.SetLoss(loss); }

  /// Takes an arriving packet: it is sent at once, waits, or is dropped.
  void Enqueue(Nanoseconds now, const DataPacket& packet, std::uint32_t flow);

  /// When the packet being sent will have left; `kNever` if there is none.
  Nanoseconds departure() const { return departure_; }
  /// Ends the sending of that packet. Returns false if the link loses it.
  bool Depart(Item& item);

  void StartStep(Nanoseconds now);
  /// What was measured since `StartStep`.
  LinkRow GetRow(Nanoseconds now);

 private:
  void EnqueueManaged(Nanoseconds now, const Item& item);
  void FillDevice(Nanoseconds now);
  void Integrate(Nanoseconds now);
  void StartSending(Nanoseconds now);
  double MeanRateMbps(Nanoseconds now) const;
  double Utilisation(Nanoseconds now) const;
  std::int64_t WaitingPackets() const { return static_cast<std::int64_t>(queue_.size() - 1 + managed_packets_); }
  Nanoseconds TimeToSend(Bytes bytes) const {
    return static_cast<Nanoseconds>(static_cast<double>(bytes) * ns_per_byte_);
  }

  Ring<Item> queue_;                             // the first is being sent, the second is in the device
  std::unique_ptr<QueueDiscipline> discipline_;  // has the packets behind these two; null: they are in `queue_`, too
  std::size_t capacity_ = 1;
  Policer policer_;
  LossModel loss_;
  double rate_mbps_ = 0.0;
  double ns_per_byte_ = 0.0;
  double sending_rate_mbps_ = 0.0;  // of the packet that is being sent, or was the last
  Nanoseconds departure_ = kNever;

  std::size_t managed_packets_ = 0;  // in `discipline_`
  Bytes waiting_bytes_ = 0;
  // Sums since the start of the step; times in ns.
  Nanoseconds step_start_ = 0;
  Nanoseconds last_change_ = 0;
  Nanoseconds rate_since_ = 0;
  double earlier_rates_ = 0.0;  // Mbit/s x ns, before `rate_since_`
  double packet_ns_ = 0.0;
  Nanoseconds sending_ns_ = 0;  // at `sending_rate_mbps_`
  double earlier_sent_ = 0.0;   // Mbit/s x ns, at other rates before
  std::int64_t most_packets_ = 0;
  double delay_ns_ns_ = 0.0;
  double most_delay_ns_ = 0.0;
  QueueTally tally_;
  std::uint64_t random_losses_ = 0;
};

}  // namespace bbrgym
