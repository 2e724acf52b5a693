#pragma once

#include <cstdint>

#include "baselines/cc/windowed_max.h"

namespace bbrgym {

/// The minimum of a stream of numbers over a sliding window, as `WindowedMax`.
template <typename Value>
class WindowedMin {
 public:
  explicit WindowedMin(std::int64_t window) : negative_(window) {}

  /// Changes the length of the window for the following samples.
  void SetWindow(std::int64_t window) { negative_.SetWindow(window); }

  /// Takes a sample. `time` must not decrease.
  void Update(std::int64_t time, Value value) { negative_.Update(time, -value); }
  /// Forgets all samples but this one.

  /// The minimum; 0 before the first sample.
  Value Least() const { return -negative_.Best(); }

 private:
  WindowedMax<Value> negative_;
};

}  // namespace bbrgym
