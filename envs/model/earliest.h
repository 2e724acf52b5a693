#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "baselines/cc/units.h"

namespace bbrgym {

/// The earliest of many times, as a tournament tree: a change costs O(log n), a look-up O(1). Among equal times the
/// one with the lowest index wins, so that the order of events is deterministic.
class Earliest {
 public:
  void Reset(std::size_t count, Nanoseconds time) {
    leaves_ = 1;
    while (leaves_ < count) leaves_ *= 2;
    times_.assign(leaves_, INT64_MAX);
    for (std::size_t i = 0; i < count; ++i) times_[i] = time;
    winners_.assign(2 * leaves_, 0);
    for (std::size_t i = 0; i < leaves_; ++i) winners_[leaves_ + i] = static_cast<std::uint32_t>(i);
    for (std::size_t node = leaves_ - 1; node > 0; --node) Play(node);
  }

  void Set(std::size_t index, Nanoseconds time) {
    if (times_[index] == time) return;
    times_[index] = time;
    for (std::size_t node = (leaves_ + index) / 2; node > 0; node /= 2) {
      const std::uint32_t before = winners_[node];
      Play(node);
      // Nothing changes further up if the changed time did not win here before and does not win now.
      if (before != index && winners_[node] == before) return;
    }
  }

  std::size_t index() const { return winners_[1]; }
  Nanoseconds time() const { return times_[winners_[1]]; }
  Nanoseconds TimeOf(std::size_t index) const { return times_[index]; }

 private:
  void Play(std::size_t node) {
    const std::uint32_t left = winners_[2 * node];
    const std::uint32_t right = winners_[2 * node + 1];
    winners_[node] = times_[right] < times_[left] ? right : left;
  }

  std::size_t leaves_ = 1;
  std::vector<Nanoseconds> times_{INT64_MAX};
  std::vector<std::uint32_t> winners_{0, 0};
};

}  // namespace bbrgym
