#pragma once

#include <cstdint>

#include "baselines/cc/elementary.h"

namespace bbrgym {

/// A small generator whose sequence is the same on every machine (SplitMix64, Steele et al., OOPSLA 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t Next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31U);
  }

  /// Returns one of 0 … count-1. The bias of the remainder is below 1e-17 for the small counts used here.
  std::uint64_t Below(std::uint64_t count) { return Next() % count; }

  /// Uniform in [0, 1), in steps of 2^-53.
  double Uniform() { return static_cast<double>(Next() >> 11U) * 0x1p-53; }

  /// Exponentially distributed.
  double Exponential(double mean) { return -mean * Log(Uniform() + 0x1p-53); }  // of a number in (0, 1]

 private:
  std::uint64_t state_;
};

}  // namespace bbrgym
