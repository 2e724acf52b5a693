#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "envs/linux/clock.h"
#include "envs/linux/paths.h"
#include "envs/model/episode_seeds.h"
#include "envs/model/scenario.h"
#include "envs/transport/wire.h"

namespace bbrgym {

/// The first flow's port; flow i has this one + i, at the receiver.
inline constexpr int kFirstPort = 5001;

/// Headers of IPv4 and UDP.
inline constexpr int kDatagramHeaderBytes = 20 + 8;

/// The largest packet of our transport beside data: an acknowledgement with all its ranges.
inline constexpr int kLargestAnswer = kDatagramHeaderBytes + static_cast<int>(wire::kMaxControlBytes);

/// How late packets left the last link or delay of their path, since the beginning of the episode.
struct Lateness {
  std::uint64_t packets = 0;
  Nanoseconds mean = 0;
  Nanoseconds p999 = 0;
  Nanoseconds most = 0;
};

/// What the emulator sees of a flow's data packets; of the kernel's flows nobody else does.
struct Passage {
  std::uint64_t sent_packets = 0;
  Bytes sent_bytes = 0;
  Bytes arrived_bytes = 0;
  Bytes inorder_bytes = 0;
  Bytes received_bytes = 0;  ///< payload without gaps; of UDP, all payload
  std::uint64_t arrived_packets = 0;
  std::uint64_t lost_packets = 0;           ///< that a queue dropped or a link lost
  std::uint64_t marked_packets = 0;         ///< that arrived with CE
  std::uint64_t retransmitted_packets = 0;  ///< of TCP: those that began before the end of an earlier one
  bool is_tcp = false;
  bool is_fragmented = false;  ///< one of its ends sent a datagram that does not fit in a packet
};

/// The time from a flow's sender to its receiver, over the data packets that arrived in a step.
struct DelayCounts {
  std::uint64_t packets = 0;
  Nanoseconds sum = 0;
  Nanoseconds least = kNever;
  Nanoseconds most = 0;
  Nanoseconds jitter_sum = 0;  ///< of the differences between one and the next, without sign
};

/// The scenario's paths between two devices: packets that senders put into one come out of the other, and what
/// receivers answer comes back.
///
/// The clock drives the paths. When a packet leaves any of their links follows from when it was read here and from the
/// links' rates, not from when this program wakes. So only what comes out of a device can be late.
class Emulator {
 public:
  Emulator(const Scenario& scenario, const EpisodeSeeds& seeds, int sender_device, int receiver_device);

  /// Carries packets until `Stop`, on the calling thread.
  void Run(const EpisodeClock& clock);
  void Stop() { is_stopped_ = true; }

  // From other threads.
  /// Returns the link's row of the step that ends, and starts the next one.
  LinkRow EndStep(const EpisodeClock& clock);
  Passage GetPassage(std::size_t flow);
  /// Returns the flow's delays since the last call, and its latest one so far.
  std::pair<DelayCounts, std::optional<Nanoseconds>> TakeDelays(std::size_t flow);
  Lateness GetLateness();

 private:
  static constexpr std::size_t kNoFlow = SIZE_MAX;

  /// What a packet is, from its IPv4 header and that of UDP or TCP.
  struct Parsed {
    std::size_t flow = kNoFlow;  // this, if it is none of ours
    std::int32_t payload = 0;
    std::int32_t link_bytes = 0;   // what it occupies on a link beside kHeaderBytes
    std::uint16_t other_port = 0;  // that of the end that has not the flow's
    bool is_data = false;
    bool is_tcp = false;
    bool is_fragment = false;
    std::uint32_t sequence = 0;
  };

  struct Frame {
    std::size_t bytes = 0;
    Nanoseconds entered = 0;
    Parsed parsed;
    std::vector<std::uint8_t> content;
  };

  struct TcpState {
    std::optional<std::uint32_t> sent_end;
    std::uint32_t next_sequence = 0;
    bool has_sequence = false;
    std::map<std::uint32_t, std::uint32_t> beyond;  // begin and end of what has arrived out of order
  };

  struct FlowState {
    bool is_command = false;
    bool is_from_server = false;  // the flow's port is its sender's
    Passage passage;
    DelayCounts delays;
    std::optional<Nanoseconds> last_delay;
    std::map<std::uint16_t, TcpState> connections;  // by the other port
  };

  /// Both return whether there was a packet.
  bool AcceptData(Nanoseconds now);
  bool AcceptAck(Nanoseconds now);
  Parsed Parse(std::span<const std::uint8_t> packet, bool is_data) const;
  void Advance(Nanoseconds now);
  void Deliver(const Paths::Arrival& arrival, Nanoseconds now);
  void CountSent(const Parsed& parsed);
  void CountArrival(const Parsed& parsed);
  void CountDelay(FlowState& flow, Nanoseconds delay);
  /// Reads the next packet that waits in a device into the slot `spare_`; returns whether there was one. Fragments are
  /// noted, and are packets of no flow.
  bool Read(int device, bool is_data);
  std::uint32_t TakeSlot();

  const std::size_t frame_bytes_;  // of the largest packet
  const int sender_device_;
  const int receiver_device_;
  std::atomic<bool> is_stopped_ = false;
  std::mutex mutex_;  // guards all that follows

  Paths paths_;  // which know packets by their slots
  std::vector<FlowState> flows_;
  std::vector<Frame> slots_;
  std::vector<std::uint32_t> free_slots_;
  std::uint32_t spare_ = 0;  // the slot of the next packet to be read

  static constexpr Nanoseconds kLatenessUnit = 10'000;
  std::vector<std::uint64_t> lateness_;  // how many packets were so many units late
  std::uint64_t delivered_ = 0;
  double lateness_sum_ = 0.0;
  Nanoseconds most_late_ = 0;
};

}  // namespace bbrgym
