#include "baselines/cc/policy/network.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "baselines/cc/elementary.h"

namespace bbrgym {

namespace {

constexpr std::string_view kMagic = "bbrgympo";
constexpr std::uint32_t kVersion = 3;
constexpr std::uint32_t kVersionWithSkip = 4;  // the same, and then the weights of the skip
constexpr std::uint32_t kMaxHistory = 1000;    // as in bbrgym.envs.observation
constexpr std::uint32_t kMaxWidth = 65'536;
constexpr std::uint32_t kMaxLayers = 100;
constexpr double kMaxIntervalMinRtts = 1e6;

const PolicyFeature& Feature(std::string_view name) {
  // Python cannot make every byte a part of a message.
  const auto is_printable = [](char byte) { return byte >= ' ' && byte <= '~'; };
  if (!std::all_of(name.begin(), name.end(), is_printable)) {
    throw PolicyError("the names of a policy's features must be printable ASCII");
  }
  try {
    return FindPolicyFeature(name);
  } catch (const std::invalid_argument& error) {
    throw PolicyError(error.what());
  }
}

float Sigmoid(float x) {
  return 0.5F * (Tanh(0.5F * x) + 1.0F);
}

}  // namespace

/// Reads values from the front of some bytes, all little-endian.
class PolicyNetwork::Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  std::string_view Take(std::size_t count, const std::string& what) {
    if (count > rest_.size()) throw PolicyError("the policy ends within " + what);
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  template <typename Unsigned>
  Unsigned Whole(const std::string& what) {
    Unsigned value = 0;
    const std::string_view bytes = Take(sizeof(Unsigned), what);
    for (std::size_t i = 0; i < sizeof(Unsigned); ++i) {
      value = static_cast<Unsigned>(value | static_cast<Unsigned>(static_cast<unsigned char>(bytes[i])) << (8 * i));
    }
    return value;
  }

  /// In [low, high].
  std::uint32_t Count(std::uint32_t low, std::uint32_t high, const std::string& what) {
    const auto count = Whole<std::uint32_t>(what);
    if (count < low || count > high) {
      throw PolicyError(what + " of a policy must be in [" + std::to_string(low) + ", " + std::to_string(high) +
                        "], got " + std::to_string(count));
    }
    return count;
  }

  GainRange Range(const std::string& what) {
    GainRange range{.low = Double(what)};
    range.high = Double(what);
    if (!(range.low > 0.0 && range.low < range.high && std::isfinite(range.high))) {
      throw PolicyError(what + " of a policy must be two rising numbers > 0");
    }
    return range;
  }

  double Double(const std::string& what) { return std::bit_cast<double>(Whole<std::uint64_t>(what)); }

  /// One of the first `count` values of an enumeration.
  template <typename Enum>
  Enum Choice(unsigned count, const std::string& what) {
    const auto value = Whole<std::uint8_t>(what);
    if (value >= count) throw PolicyError("unknown " + what + " " + std::to_string(value) + " of a policy");
    return static_cast<Enum>(value);
  }

  /// Weights in the order [outputs][inputs].
  Layer Weights(std::size_t inputs, std::size_t outputs, const std::string& what) {
    if (inputs * outputs > rest_.size() / sizeof(float)) throw PolicyError("the policy ends within " + what);
    Layer layer{inputs, outputs, std::vector<float>(inputs * outputs), {}};
    for (std::size_t output = 0; output < outputs; ++output) {
      for (std::size_t input = 0; input < inputs; ++input) {
        layer.weights[input * outputs + output] = Float(what);
      }
    }
    return layer;
  }

  void ReadBias(Layer& layer, const std::string& what) {
    if (layer.outputs > rest_.size() / sizeof(float)) throw PolicyError("the policy ends within " + what);
    layer.bias.resize(layer.outputs);
    for (float& value : layer.bias) value = Float(what);
  }

  void Finish() const {
    if (!rest_.empty()) throw PolicyError("the policy has " + std::to_string(rest_.size()) + " bytes too many");
  }

 private:
  float Float(const std::string& what) {
    const auto value = std::bit_cast<float>(Whole<std::uint32_t>(what));
    if (!std::isfinite(value)) throw PolicyError("the weights of a policy must be finite, got another in " + what);
    return value;
  }

  std::string_view rest_;
};

std::shared_ptr<const PolicyNetwork> PolicyNetwork::Parse(std::string_view bytes) {
  Reader reader(bytes);
  if (!bytes.starts_with(kMagic)) throw PolicyError("the bytes are not a policy");
  reader.Take(kMagic.size(), "its beginning");
  const auto version = reader.Whole<std::uint32_t>("its version");
  if (version != kVersion && version != kVersionWithSkip) {
    throw PolicyError("the version of a policy must be " + std::to_string(kVersion) + " or " +
                      std::to_string(kVersionWithSkip) + ", got " + std::to_string(version));
  }
  // make_shared cannot call a private constructor.
  std::shared_ptr<PolicyNetwork> policy(new PolicyNetwork());

  const auto features = reader.Count(1, static_cast<std::uint32_t>(PolicyFeatures().size()), "the number of features");
  for (std::uint32_t i = 0; i < features; ++i) {
    const std::string what = "the name of feature " + std::to_string(i);
    const auto length = reader.Count(1, 64, "the length of " + what);
    const std::string_view name = reader.Take(length, what);
    const PolicyFeature& feature = Feature(name);
    if (std::find(policy->features_.begin(), policy->features_.end(), &feature) != policy->features_.end()) {
      throw PolicyError("the policy has the feature '" + std::string(name) + "' twice");
    }
    policy->features_.push_back(&feature);
  }
  policy->history_ = reader.Count(1, kMaxHistory, "history");

  policy->gain_map_.cwnd = reader.Range("the bounds of cwnd_gain");
  policy->gain_map_.pacing = reader.Range("the bounds of pacing_gain");
  policy->gain_map_.cwnd_scale = reader.Choice<CwndScale>(3, "cwnd_scale");
  policy->is_bbr_model_ = reader.Choice<std::uint8_t>(2, "model") == 1;
  const auto interval_ns = reader.Whole<std::uint64_t>("interval_ns");
  const double interval_min_rtts = reader.Double("interval_min_rtts");
  const bool is_fixed = interval_ns >= 1 && interval_ns <= std::uint64_t{1} << 62U && interval_min_rtts == 0.0;
  const bool is_of_rtts = interval_ns == 0 && interval_min_rtts > 0.0 && interval_min_rtts <= kMaxIntervalMinRtts;
  if (!is_fixed && !is_of_rtts) throw PolicyError("a policy must have one interval > 0, in ns or in min_rtts");
  policy->interval_ns_ = static_cast<Nanoseconds>(interval_ns);
  policy->interval_min_rtts_ = interval_min_rtts;

  policy->activation_ = reader.Choice<Activation>(2, "activation");
  policy->bounds_ = reader.Choice<Bounds>(2, "output");
  std::size_t width = policy->inputs();
  const auto lstm_layers = reader.Count(0, kMaxLayers, "the number of LSTM layers");
  for (std::uint32_t i = 0; i < lstm_layers; ++i) {
    const std::string what = "LSTM layer " + std::to_string(i);
    const std::size_t hidden = reader.Count(1, kMaxWidth, "the width of " + what);
    LstmLayer layer;
    layer.of_input = reader.Weights(width, 4 * hidden, what);
    layer.of_state = reader.Weights(hidden, 4 * hidden, what);
    reader.ReadBias(layer.of_input, what);
    policy->lstm_.push_back(std::move(layer));
    width = hidden;
  }
  const auto layers = reader.Count(1, kMaxLayers, "the number of layers");
  for (std::uint32_t i = 0; i < layers; ++i) {
    const std::string what = "layer " + std::to_string(i);
    const std::size_t outputs = reader.Count(1, kMaxWidth, "the width of " + what);
    Layer layer = reader.Weights(width, outputs, what);
    reader.ReadBias(layer, what);
    policy->layers_.push_back(std::move(layer));
    width = outputs;
  }
  if (width != 2) throw PolicyError("a policy must have 2 outputs, got " + std::to_string(width));
  if (version == kVersionWithSkip) policy->skip_ = reader.Weights(policy->inputs(), width, "the skip").weights;
  reader.Finish();
  return policy;
}

PolicyNetwork::Memory PolicyNetwork::MakeMemory() const {
  Memory memory;
  for (std::size_t step = 0; step < history_; ++step) {
    for (const PolicyFeature* feature : features_) memory.observation.push_back(static_cast<float>(feature->neutral));
  }
  memory.state.assign(state_size(), 0.0F);
  memory.scratch = MakeScratch();
  return memory;
}

std::size_t PolicyNetwork::state_size() const {
  std::size_t size = 0;
  for (const LstmLayer& layer : lstm_) size += 2 * layer.hidden();
  return size;
}

PolicyNetwork::Scratch PolicyNetwork::MakeScratch() const {
  std::size_t widest = inputs();
  for (const LstmLayer& layer : lstm_) widest = std::max(widest, layer.of_input.outputs);
  for (const Layer& layer : layers_) widest = std::max(widest, layer.outputs);
  return {std::vector<float>(widest), std::vector<float>(widest)};
}

void PolicyNetwork::Observe(const PolicyColumns& columns, Memory& memory) const {
  std::copy(memory.observation.begin() + static_cast<std::ptrdiff_t>(features_.size()), memory.observation.end(),
            memory.observation.begin());
  float* value = memory.observation.data() + memory.observation.size() - features_.size();
  for (const PolicyFeature* feature : features_) *value++ = feature->Evaluate(columns);
}

namespace {

/// y += W x. Sums of `kBlock` outputs stay in registers; each is added up in the order of the inputs.
void AddProduct(const std::vector<float>& weights, const float* x, std::size_t inputs, float* y, std::size_t outputs) {
  constexpr std::size_t kBlock = 16;
  std::size_t first = 0;
  for (; first + kBlock <= outputs; first += kBlock) {
    std::array<float, kBlock> sums;
    std::copy_n(y + first, kBlock, sums.begin());
    const float* row = weights.data() + first;
    for (std::size_t input = 0; input < inputs; ++input, row += outputs) {
      for (std::size_t i = 0; i < kBlock; ++i) sums[i] += row[i] * x[input];
    }
    std::copy_n(sums.begin(), kBlock, y + first);
  }
  for (; first < outputs; ++first) {
    float sum = y[first];
    for (std::size_t input = 0; input < inputs; ++input) sum += weights[input * outputs + first] * x[input];
    y[first] = sum;
  }
}

}  // namespace

Action PolicyNetwork::Output(const float* observation, float* state, Scratch& scratch) const {
  const float* x = observation;
  float* y = scratch[0].data();
  float* other = scratch[1].data();
  float* hidden = state;
  for (const LstmLayer& layer : lstm_) {
    const std::size_t width = layer.hidden();
    float* cell = hidden + width;
    std::copy(layer.of_input.bias.begin(), layer.of_input.bias.end(), y);
    AddProduct(layer.of_input.weights, x, layer.of_input.inputs, y, layer.of_input.outputs);
    AddProduct(layer.of_state.weights, hidden, width, y, layer.of_state.outputs);
    for (std::size_t i = 0; i < width; ++i) {
      cell[i] = Sigmoid(y[width + i]) * cell[i] + Sigmoid(y[i]) * Tanh(y[2 * width + i]);
      hidden[i] = Sigmoid(y[3 * width + i]) * Tanh(cell[i]);
    }
    x = hidden;
    hidden = cell + width;
  }
  for (const Layer& layer : layers_) {
    std::copy(layer.bias.begin(), layer.bias.end(), y);
    AddProduct(layer.weights, x, layer.inputs, y, layer.outputs);
    if (&layer == &layers_.back()) {
      if (!skip_.empty()) AddProduct(skip_, observation, inputs(), y, layer.outputs);
    } else {
      for (std::size_t i = 0; i < layer.outputs; ++i) {
        y[i] = activation_ == Activation::kTanh ? Tanh(y[i]) : std::max(y[i], 0.0F);
      }
    }
    x = y;
    std::swap(y, other);
  }
  return {x[0], x[1]};
}

Action PolicyNetwork::Bound(const Action& output) const {
  const auto bounded = [this](double value) -> double {
    return bounds_ == Bounds::kTanh ? Tanh(static_cast<float>(value)) : std::min(std::max(value, -1.0), 1.0);
  };
  return {.cwnd = bounded(output.cwnd), .pacing = bounded(output.pacing)};
}

bool PolicyNetwork::IsPlain() const {
  return history_ == 1 && lstm_.empty() && skip_.empty() && bounds_ == Bounds::kClip &&
         (layers_.size() == 1 || activation_ == Activation::kTanh);
}

Nanoseconds PolicyNetwork::Interval(Nanoseconds min_rtt) const {
  if (interval_ns_ > 0) return interval_ns_;
  const double interval = std::min(interval_min_rtts_ * static_cast<double>(min_rtt), 0x1p62);
  return std::max<Nanoseconds>(static_cast<Nanoseconds>(interval), 1);
}

}  // namespace bbrgym
