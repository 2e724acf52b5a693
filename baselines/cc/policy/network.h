#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "baselines/cc/policy/features.h"
#include "baselines/cc/units.h"

namespace bbrgym {

/// Bytes that are no policy; the message says why.
class PolicyError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// A trained policy: which features it sees, LSTM and fully connected layers, what its actions mean and how often it
/// decides. It never changes, so that any number of flows share one; what a flow remembers is its own `Memory`.
///
/// Single precision, and of the elementary functions none but those of IEEE 754 (tanh is a rational function): the
/// same observations give the same actions, to the last bit, on every machine.
class PolicyNetwork {
 public:
  /// What the decisions of one flow need; nothing is allocated later.
  struct Memory {
    /// Features of the last steps, the latest last.
    std::vector<float> observation;

   private:
    friend class PolicyNetwork;
    std::vector<float> state;  // hidden and cell state of one LSTM layer after the other
    std::array<std::vector<float>, 2> values;
  };

  /// cwnd_gain and pacing_gain.
  using Gains = std::array<double, 2>;
  using Action = std::array<float, 2>;

  /// Reads what `Agent.to_bytes` (agents/policy.py) writes; docs/algorithms/policy.md has the format. Throws
  /// `PolicyError` for anything else.
  static std::shared_ptr<const PolicyNetwork> Parse(std::string_view bytes);

  /// The memory of a flow that has not begun: every feature neutral.
  Memory MakeMemory() const;

  /// Adds a step to what is observed.
  void Observe(const PolicyColumns& columns, Memory& memory) const;

  /// What it does about `memory.observation`: a number in [-1, 1] a gain.
  Action Act(Memory& memory) const;

  /// The gains that an action means for a flow with this estimate of its BDP (NaN if it has none), inside of their
  /// bounds; NaN stays NaN.
  Gains ToGains(const Action& action, double bdp_packets) const;

  /// How long a step is for a flow with this min_rtt; at least 1.
  Nanoseconds Interval(Nanoseconds min_rtt) const;

  /// Length of an observation.
  std::size_t inputs() const { return features_.size() * history_; }

 private:
  enum class Activation : std::uint8_t { kTanh, kRelu };
  enum class Output : std::uint8_t { kClip, kTanh };
  enum class CwndScale : std::uint8_t { kRatio, kPackets };

  /// y = W x + b with the weights of an input together, [inputs][outputs]: what is added to one output then never
  /// waits for what is added to the next.
  struct Layer {
    std::size_t inputs = 0;
    std::size_t outputs = 0;
    std::vector<float> weights;
    std::vector<float> bias;
  };

  /// The gates' weights of the input and of the hidden state (both with 4 x hidden outputs, in torch's order: input,
  /// forget, cell, output); the bias is in the former.
  struct LstmLayer {
    Layer of_input;
    Layer of_state;
    std::size_t hidden() const { return of_state.inputs; }
  };

  class Reader;

  PolicyNetwork() = default;

  std::vector<const PolicyFeature*> features_;
  std::size_t history_ = 1;
  std::array<double, 2> low_{};
  std::array<double, 2> high_{};
  CwndScale cwnd_scale_ = CwndScale::kRatio;
  Nanoseconds interval_ns_ = 0;     // or, if 0…
  double interval_min_rtts_ = 0.0;  // …in min_rtts
  Activation activation_ = Activation::kTanh;
  Output output_ = Output::kClip;
  std::vector<LstmLayer> lstm_;
  std::vector<Layer> layers_;
};

}  // namespace bbrgym
