#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "baselines/cc/units.h"

/// The seam between a congestion controller and whatever runs it: facts of one ACK in, a decision out.
namespace bbrgym {

class PolicyNetwork;

/// The delivery rate that an ACK reveals (draft-cheng-iccrg-delivery-rate-estimation-02, section 3.3).
struct RateSample {
  /// Whether this ACK gave a sample; if not, nothing else here means anything.
  bool is_valid = false;
  /// delivered / interval.
  BitsPerSecond delivery_rate = 0;
  /// The longer of the send and the ACK phase of the sampled flight.
  Nanoseconds interval = 0;
  /// Delivered over the interval.
  Bytes delivered = 0;
  /// The connection's total of delivered bytes when the sampled packet was sent; tells rounds apart.
  Bytes prior_delivered = 0;
  /// The sender had too little to send while the flight was sent: the rate is no measure of the path.
  bool is_app_limited = false;
  /// In flight just after the sampled packet was sent, itself included.
  Bytes tx_in_flight = 0;
  /// Marked lost between the sampled packet's sending and this ACK.
  Bytes lost_since_send = 0;
};

/// What one ACK says.
struct AckEvent {
  Nanoseconds now = 0;
  /// RTT of the newest packet that this ACK delivers, cumulatively or by SACK; 0 if there is no unambiguous one.
  Nanoseconds rtt = 0;
  /// Newly delivered by this ACK (cumulatively or by SACK).
  Bytes bytes_acked = 0;
  /// Newly marked lost on this ACK.
  Bytes bytes_lost = 0;
  /// In flight before this ACK.
  Bytes prior_in_flight = 0;
  /// In flight after it.
  Bytes in_flight = 0;
  /// Totals of the connection, this ACK included; `sent` counts retransmissions.
  Bytes delivered = 0;
  Bytes sent = 0;
  /// The congestion window, not the application or the receiver, limits what is in flight.
  bool is_cwnd_limited = true;
  RateSample sample;
};

/// What the controller wants from now on.
struct Decision {
  Bytes cwnd = 0;
  BitsPerSecond pacing_rate = 0;
  /// How much may leave back to back before the pace makes it wait.
  Bytes send_quantum = 0;
  /// Whether the sender keeps to `pacing_rate` (it is computed in any case).
  bool is_paced = false;
  /// The controller holds the flow back on purpose: what is sent now must count as application-limited.
  bool is_app_limited = false;
};

/// Multiples of what a model of the path estimates: of the BDP for the window, of the bandwidth for the pacing rate.
struct Gains {
  double cwnd = 1.0;
  double pacing = 1.0;
};

/// Loss recovery as the transport sees it.
enum class Recovery : std::uint8_t {
  kOpen,      ///< nothing is known to be missing
  kRecovery,  ///< fast recovery after SACKs revealed losses
  kLoss,      ///< after a retransmission timeout, until all that was in flight then is delivered
};

/// What the `mode` metric says.
enum class Mode : std::uint8_t {
  kStartup = 0,
  kDrain = 1,
  kProbeBw = 2,
  kProbeRtt = 3,
  kSlowStart = 4,
  kCongestionAvoidance = 5,
  kRecovery = 6,
};

enum class Metric : std::uint8_t {
#define METRIC(name, meaning) name,
#include "baselines/cc/metrics.def"
#undef METRIC
  kCount
};

/// A controller's own state, one value a metric; what it does not have is NaN.
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

/// What a controller is made with, beside its parameters.
struct Connection {
  /// Payload of a full packet.
  Bytes packet_bytes = 1000;
  /// Congestion window before the first ACK (RFC 6928: 10 packets).
  Bytes initial_cwnd = 10'000;
  /// RTT of the handshake; 0 if it is not known.
  Nanoseconds initial_rtt = 0;
  /// Decides everything random in the controller.
  std::uint64_t seed = 1;
  /// What a controller decides by that runs a trained policy; the others have no use for it.
  std::shared_ptr<const PolicyNetwork> policy;
};

/// One flow's congestion control. It has no clock, does no input or output, and knows no simulator: the same calls
/// make the same decisions anywhere.
class Controller {
 public:
  virtual ~Controller() = default;

  /// Called once for every ACK that delivers or marks lost anything, after the transport has updated its scoreboard
  /// and after `OnRecovery` if the ACK changed the recovery state.
  virtual void OnAck(const AckEvent& ack) = 0;

  /// Called when loss recovery begins, ends, or a retransmission timeout strikes (again).
  virtual void OnRecovery(Recovery state, Nanoseconds now, Bytes in_flight) = 0;

  /// Called when sending resumes with nothing in flight because the application had nothing to send.
  virtual void OnRestart(Nanoseconds now) = 0;

  /// Sets the gains from outside; returns false, and does nothing, in a controller that chooses its own.
  virtual bool Steer(double cwnd_gain, double pacing_gain) {
    static_cast<void>(cwnd_gain);
    static_cast<void>(pacing_gain);
    return false;
  }

  /// What the transport does until the next call of any of the above.
  virtual Decision decision() const = 0;

  virtual Metrics metrics() const = 0;

 protected:
  Controller() = default;
  Controller(const Controller&) = default;
  Controller& operator=(const Controller&) = default;
};

}  // namespace bbrgym
