#pragma once

#include <poll.h>
#include <sys/prctl.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "envs/linux/clock.h"

namespace bbrgym {

/// Calls `work`, which returns when to call it next, at these times and whenever a descriptor can be read, until
/// `is_over`; at least once. It asks `is_over` every few milliseconds.
template <typename Work, typename IsOver>
void Serve(std::vector<pollfd>& descriptors, const EpisodeClock& clock, Work&& work, IsOver&& is_over) {
  constexpr Nanoseconds kLongestWait = 5 * kMillisecond;
  prctl(PR_SET_TIMERSLACK, 1000);  // ns
  do {
    const Nanoseconds next = work();
    const Nanoseconds wait = std::min(next - clock.Now(), kLongestWait);
    if (wait < kSpin) continue;
    const timespec timeout{.tv_sec = 0, .tv_nsec = wait - kSpin / 2};
    ppoll(descriptors.data(), descriptors.size(), &timeout, nullptr);
  } while (!is_over());
}

}  // namespace bbrgym
