#pragma once

#include <time.h>

#include "baselines/cc/units.h"

namespace bbrgym {

/// The monotonic clock, in ns.
inline Nanoseconds MonotonicNow() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<Nanoseconds>(now.tv_sec) * kSecond + now.tv_nsec;
}

/// Time since the beginning of an episode, which all its threads share.
class EpisodeClock {
 public:
  EpisodeClock() : start_(MonotonicNow()) {}

  Nanoseconds Now() const { return MonotonicNow() - start_; }

 private:
  Nanoseconds start_;
};

/// How long before its time a waiting thread is woken: about as late as it then wakes.
inline constexpr Nanoseconds kWakeUp = 20'000;

}  // namespace bbrgym
