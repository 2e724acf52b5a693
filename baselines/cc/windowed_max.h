#pragma once

#include <array>
#include <cstdint>

namespace bbrgym {

/// The maximum of a stream over a sliding window, in constant space: it keeps the best sample and two later runners-up
/// that replace it when it leaves the window (K. Nichols' algorithm, as in Linux's lib/win_minmax.c). The unit of time
/// is up to the caller, for example rounds.
template <typename Value>
class WindowedMax {
 public:
  explicit WindowedMax(std::int64_t window) : window_(window) {}

  /// Changes the length of the window for the following samples.
  void SetWindow(std::int64_t window) { window_ = window; }

  /// Takes a sample. `time` must not decrease.
  void Update(std::int64_t time, Value value) {
    const Sample sample{time, value};
    if (is_empty_ || value >= best_[0].value || time - best_[2].time > window_) {
      Replace(time, value);
      return;
    }
    if (value >= best_[1].value) {
      best_[1] = best_[2] = sample;
    } else if (value >= best_[2].value) {
      best_[2] = sample;
    }
    const std::int64_t age = time - best_[0].time;
    if (age > window_) {
      // The best has left the window; its runner-up may have left too, if no sample came in between.
      Promote(sample);
      if (time - best_[0].time > window_) Promote(sample);
    } else if (best_[1].time == best_[0].time && age > window_ / 4) {
      // A quarter of the window without a runner-up: take the latest, so that one exists when the best leaves.
      best_[1] = best_[2] = sample;
    } else if (best_[2].time == best_[1].time && age > window_ / 2) {
      best_[2] = sample;
    }
  }

  /// Forgets all samples but this one.
  void Replace(std::int64_t time, Value value) {
    is_empty_ = false;
    best_.fill({time, value});
  }

  /// The maximum; 0 before the first sample.
  Value Best() const { return is_empty_ ? Value{} : best_[0].value; }

 private:
  struct Sample {
    std::int64_t time = 0;
    Value value{};
  };

  void Promote(const Sample& sample) {
    best_[0] = best_[1];
    best_[1] = best_[2];
    best_[2] = sample;
  }

  std::int64_t window_;
  bool is_empty_ = true;
  std::array<Sample, 3> best_{};
};

}  // namespace bbrgym
