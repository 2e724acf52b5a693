#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "envs/model/bottleneck.h"
#include "envs/model/earliest.h"
#include "envs/model/episode_seeds.h"
#include "envs/model/further_links.h"
#include "envs/model/reordering.h"
#include "envs/model/return_path.h"
#include "envs/model/ring.h"
#include "envs/model/rows.h"
#include "envs/model/scenario.h"

namespace bbrgym {

/// What lies between the hosts of a scenario: delays, links, return paths. It has no clock and does no I/O: packets and
/// times go in, packets come out. Links, losses and return paths are those of the native engine.
///
/// Delays are those of ns-3's dumbbell: `LinkDelayMs` lies behind the bottleneck and behind the reverse link, none
/// beside the second link, and the rest of the way to the receiver in front of the first link that a flow's data takes.
class Paths {
 public:
  /// A packet: its payload, its ECN field, its flow, and a number by which the caller knows it.
  using Packet = Bottleneck::Item;

  struct Arrival {
    Nanoseconds time = 0;
    Packet packet;
    bool is_data = false;  ///< at the receiver; else at the sender
  };

  Paths(const Scenario& scenario, const EpisodeSeeds& seeds);
  Paths(const Paths&) = delete;  // flows point to links
  Paths& operator=(const Paths&) = delete;

  /// A packet leaves its sender, or its receiver, at `now`. What leaves a receiver has no payload for the links. Times
  /// never decrease, those of `Advance` included.
  void Send(Nanoseconds now, const Packet& packet);
  void Return(Nanoseconds now, const Packet& packet);

  /// Does everything that is due by `now`.
  void Advance(Nanoseconds now);
  /// When the next thing is due.
  Nanoseconds NextEvent() const;

  /// What has arrived in order of time, and what never will; the caller clears both.
  std::vector<Arrival>& arrivals() { return arrivals_; }
  std::vector<Packet>& lost() { return lost_; }

  void StartStep(Nanoseconds now);
  /// The link's row since `StartStep`.
  LinkRow GetRow(Nanoseconds now);

 private:
  /// A packet on its way to where all that follow it arrive later.
  struct Passing {
    Nanoseconds due = 0;
    Packet packet;
  };

  class Lane {
   public:
    void Push(Nanoseconds due, const Packet& packet) { packets_.Push({.due = due, .packet = packet}); }
    Packet Pop();
    Nanoseconds due() const { return packets_.IsEmpty() ? kNever : packets_.Front().due; }

   private:
    Ring<Passing> packets_;
  };

  struct FlowState {
    Route route;
    Nanoseconds ahead = 0;  // delay from the sender to its first link
    ReturnPath path;
    Lane entering;   // between the sender and its first link
    Lane returning;  // on the return path
  };

  /// What a scenario with one link does not have.
  struct Further {
    Further(const Scenario& scenario, std::vector<Packet>* dropped) : links(scenario, dropped) {}

    FurtherLinks links;
    Lane behind_reverse;  // data between the reverse link and its receivers
    Lane acks;            // about to enter a link

    Nanoseconds NextEvent() const;
  };

  void RunNext(Nanoseconds now);
  void RunFurther(Nanoseconds now);
  void SetNextRate(std::size_t index);
  void Enter();
  void Depart(Nanoseconds now);
  void Forward(Nanoseconds now, const Packet& packet);
  void ReturnFrom(Nanoseconds now, const Packet& packet);
  void Deliver(Nanoseconds now, const Packet& packet, bool is_data);
  void Lose(const Packet& packet) { lost_.push_back(packet); }

  std::vector<std::pair<double, double>> rates_;
  std::size_t next_rate_ = 0;
  Nanoseconds next_change_ = kNever;
  Nanoseconds link_delay_;
  Bottleneck link_;
  Reordering reordering_;
  std::unique_ptr<Further> further_;  // null: there is one link
  std::vector<FlowState> flows_;
  Earliest entries_;  // of each flow, the next packet to its first link
  Earliest returns_;  // and the next one to its sender
  Lane behind_;       // data behind the bottleneck
  Lane late_;         // there too, and overtaken
  std::vector<Arrival> arrivals_;
  std::vector<Packet> lost_;
};

}  // namespace bbrgym
