#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "baselines/cc/units.h"

/// The seam between a congestion controller and the engine that runs it: facts of one ACK in, a decision out.
namespace bbrgym {

class PolicyNetwork;

/// The delivery rate that an ACK reveals (draft-cheng-iccrg-delivery-rate-estimation-02, section 3.3).
struct RateSample {
  /// Whether this ACK gave a sample; if not, the other fields have no meaning.
  bool is_valid = false;
  /// delivered / interval.
  BitsPerSecond delivery_rate = 0;
  /// The longer of the send and the ACK phase of the sampled flight.
  Nanoseconds interval = 0;
  /// Bytes delivered in the interval.
  Bytes delivered = 0;
  /// Total of delivered bytes of the connection when the sampled packet was sent; separates rounds.
  Bytes prior_delivered = 0;
  /// Whether the application limited the sending of this flight, so that the rate does not measure the path.
  bool is_app_limited = false;
  /// In flight just after the sampled packet was sent, including it.
  Bytes tx_in_flight = 0;
  /// Marked lost between the sending of the sampled packet and this ACK.
  Bytes lost_since_send = 0;
  /// Reported as CE-marked in the same time: of `delivered`, what ECN says.
  Bytes marked_since_send = 0;
};

/// The facts of one ACK.
struct AckEvent {
  Nanoseconds now = 0;
  /// RTT of the newest packet that this ACK acknowledges, cumulatively or by SACK; 0 if there is no unambiguous one.
  Nanoseconds rtt = 0;
  /// Newly acknowledged by this ACK, cumulatively or by SACK.
  Bytes bytes_acked = 0;
  /// Newly marked lost on this ACK.
  Bytes bytes_lost = 0;
  /// Of `bytes_acked`, those in packets that the queue marked CE (ECN, RFC 3168); 0 if the flow is not ECN-capable.
  Bytes bytes_marked = 0;
  /// In flight before this ACK.
  Bytes prior_in_flight = 0;
  /// In flight after it.
  Bytes in_flight = 0;
  /// Totals of the connection, including this ACK; `sent` includes retransmissions.
  Bytes delivered = 0;
  Bytes sent = 0;
  /// Whether the congestion window, not the application or the receiver, has limited the bytes in flight within the
  /// last round trip.
  bool is_cwnd_limited = true;
  RateSample sample;
};

/// What the sender must do from now on.
struct Decision {
  Bytes cwnd = 0;
  BitsPerSecond pacing_rate = 0;
  /// How much may leave back to back before pacing delays the next packet.
  Bytes send_quantum = 0;
  /// Whether a burst of `send_quantum` waits until the window has room for all of it, as in the kernel's TCP.
  bool is_burst_whole = false;
  /// Whether the sender must pace; `pacing_rate` is set in any case.
  bool is_paced = false;
  /// Whether the controller holds the flow back on purpose: packets sent now must count as application-limited.
  bool is_app_limited = false;
};

/// Multiples of what a model of the path estimates: of the BDP for the window, of the bandwidth for the pacing rate.
struct Gains {
  double cwnd = 1.0;
  double pacing = 1.0;
};

/// The state of loss recovery in the transport.
enum class Recovery : std::uint8_t {
  kOpen,      ///< no packet is known to be missing
  kRecovery,  ///< fast recovery, after SACKs revealed losses
  kLoss,      ///< after a retransmission timeout, until everything that was in flight then is delivered
};

/// Values of the `mode` metric.
enum class Mode : std::uint8_t {
  kStartup = 0,
  kDrain = 1,
  kProbeBw = 2,
  kProbeRtt = 3,
  kSlowStart = 4,
  kCongestionAvoidance = 5,
  kRecovery = 6,
  kCompetitive = 7,
};

enum class Metric : std::uint8_t {
#define METRIC(name, meaning) name,
#include "baselines/cc/metrics.def"
#undef METRIC
  kCount
};

/// The state of a controller: one value per metric, NaN where it has none.
class Metrics {
 public:
  static constexpr std::size_t kSize = static_cast<std::size_t>(Metric::kCount);

  Metrics() { values_.fill(std::numeric_limits<double>::quiet_NaN()); }
  void Set(Metric metric, double value) { values_[static_cast<std::size_t>(metric)] = value; }
  double Get(Metric metric) const { return values_[static_cast<std::size_t>(metric)]; }
  const std::array<double, kSize>& values() const { return values_; }

 private:
  std::array<double, kSize> values_;
};

/// What a controller is made with, besides its parameters.
struct Connection {
  /// Payload of a full packet.
  Bytes packet_bytes = 1000;
  /// Congestion window before the first ACK (RFC 6928: 10 packets).
  Bytes initial_cwnd = 10'000;
  /// RTT of the handshake; 0 if it is not known.
  Nanoseconds initial_rtt = 0;
  /// Seed of everything random in the controller.
  std::uint64_t seed = 1;
  /// The trained policy that the controller `policy` runs; the others do not use it.
  std::shared_ptr<const PolicyNetwork> policy;
};

/// The congestion control of one flow. It has no clock, does no I/O and knows no simulator: the same calls give the
/// same decisions everywhere.
class Controller {
 public:
  virtual ~Controller() = default;

  /// Called once for every ACK by which anything is delivered or marked lost, after the transport has updated its
  /// scoreboard, and after `OnRecovery` if the ACK changed the state of recovery.
  virtual void OnAck(const AckEvent& ack) = 0;

  /// Called when loss recovery begins or ends, and on every retransmission timeout.
  virtual void OnRecovery(Recovery state, Nanoseconds now, Bytes in_flight) = 0;

  /// Called when it turns out that nothing was lost: every packet that was marked lost in this recovery has arrived.
  /// Returns whether that ends the recovery, so that the next loss begins a new one. Otherwise it ends as any other.
  virtual bool OnSpuriousRecovery() { return false; }

  /// Called when sending resumes with nothing in flight, after the application had nothing to send.
  virtual void OnRestart(Nanoseconds now) = 0;

  /// Sets the gains from outside. Returns false, and does nothing, in a controller that chooses its own.
  virtual bool Steer(double /*cwnd_gain*/, double /*pacing_gain*/) { return false; }

  /// What the transport must do until the next call of any of the above.
  virtual Decision decision() const = 0;

  virtual Metrics metrics() const = 0;

  /// Why its decisions are void, in words; null in a controller that cannot fail.
  virtual const std::string* Fault() const { return nullptr; }

 protected:
  Controller() = default;
  Controller(const Controller&) = default;
  Controller& operator=(const Controller&) = default;
};

}  // namespace bbrgym
