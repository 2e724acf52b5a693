#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "baselines/cc/policy/features.h"
#include "baselines/cc/policy/gains.h"
#include "baselines/cc/units.h"

namespace bbrgym {

/// Bytes that are not a policy; the message says why.
class PolicyError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// A trained policy: which features it sees, LSTM and fully connected layers, and a linear skip from the observation to
/// the output, what its actions mean and how often it decides. It never changes, so any number of flows can share it.
/// Each flow has a `Memory` of its own.
///
/// It computes in single precision and uses only operations that IEEE 754 defines (tanh is a rational function), so the
/// same observations give the same actions to the last bit on every machine.
class PolicyNetwork {
 public:
  /// Space for the values of the layers.
  using Scratch = std::array<std::vector<float>, 2>;

  /// Everything that the decisions of one flow need; nothing is allocated later.
  struct Memory {
    /// Features of the last steps, the latest last.
    std::vector<float> observation;
    /// Hidden and cell state of each LSTM layer in turn.
    std::vector<float> state;
    Scratch scratch;
  };

  /// Reads the bytes of a policy (`bbrgym.baselines.policy_file`); docs/algorithms/policy.md has the format. Throws
  /// `PolicyError` for anything else.
  static std::shared_ptr<const PolicyNetwork> Parse(std::string_view bytes);

  /// Returns the memory of a flow that has not begun: every feature is neutral, the state 0.
  Memory MakeMemory() const;

  /// Adds a step to the observation.
  void Observe(const PolicyColumns& columns, Memory& memory) const;

  /// Returns what it does about an observation of length `inputs()`, and updates the state, of length `state_size()`.
  Action Act(const float* observation, float* state, Scratch& scratch) const {
    return Bound(Output(observation, state, scratch));
  }
  Action Act(Memory& memory) const { return Act(memory.observation.data(), memory.state.data(), memory.scratch); }

  /// Returns the last layer's values, and updates the state: the mean of the actions of a learner that explores.
  Action Output(const float* observation, float* state, Scratch& scratch) const;
  /// Returns an action within its bounds, of the last layer's values.
  Action Bound(const Action& output) const;

  /// What its actions mean.
  const GainMap& gain_map() const { return gain_map_; }

  /// Whether its flows have BBR's own model of the path (baselines/cc/bbr_model.h).
  bool is_bbr_model() const { return is_bbr_model_; }

  /// y = W x + b. The weights lie as [inputs][outputs], so that the sums of the outputs do not wait for each other.
  struct Layer {
    std::size_t inputs = 0;
    std::size_t outputs = 0;
    std::vector<float> weights;
    std::vector<float> bias;
  };

  // For code that runs it elsewhere.
  const std::vector<const PolicyFeature*>& features() const { return features_; }
  const std::vector<Layer>& layers() const { return layers_; }
  /// Whether it is no more than fully connected layers of one step's features, with tanh between and clipped actions:
  /// no LSTM and no skip.
  bool IsPlain() const;
  /// The length of a step; 0 if it depends on the RTT.
  Nanoseconds interval() const { return interval_ns_; }

  /// Returns how long a step is for a flow with this min_rtt; at least 1.
  Nanoseconds Interval(Nanoseconds min_rtt) const;

  /// Length of an observation.
  std::size_t inputs() const { return features_.size() * history_; }
  /// Number of values of the state; 0 without an LSTM.
  std::size_t state_size() const;
  Scratch MakeScratch() const;

 private:
  enum class Activation : std::uint8_t { kTanh, kRelu };
  enum class Bounds : std::uint8_t { kClip, kTanh };

  /// The weights of the gates for the input and for the hidden state. Both have 4 x hidden outputs, in torch's order:
  /// input, forget, cell, output. The bias is in `of_input`.
  struct LstmLayer {
    Layer of_input;
    Layer of_state;
    std::size_t hidden() const { return of_state.inputs; }
  };

  class Reader;

  PolicyNetwork() = default;

  std::vector<const PolicyFeature*> features_;
  std::size_t history_ = 1;
  GainMap gain_map_;
  bool is_bbr_model_ = false;
  Nanoseconds interval_ns_ = 0;     // if 0, `interval_min_rtts_` decides
  double interval_min_rtts_ = 0.0;  // in min_rtts
  Activation activation_ = Activation::kTanh;
  Bounds bounds_ = Bounds::kClip;
  std::vector<LstmLayer> lstm_;
  std::vector<Layer> layers_;
  /// Added to the last layer's values: weights of the observation, as [inputs][outputs]. Empty without a skip.
  std::vector<float> skip_;
};

}  // namespace bbrgym
