#pragma once

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <vector>

#include "envs/linux/clock.h"

namespace bbrgym {

/// Real-time priorities: what holds everything up for a moment goes before what has much to do.
enum class Priority : std::uint8_t { kHost = 1, kSteps, kEmulator };

/// Gives this thread a real-time priority where that is allowed, and the threads that it makes: a host's own timers and
/// TCP wait for no other process either. Lateness is measured anyway.
inline void UseRealTime(Priority priority) {
  const sched_param real_time{.sched_priority = static_cast<int>(priority)};
  pthread_setschedparam(pthread_self(), SCHED_FIFO, &real_time);
}

/// Calls `work`, which returns when to call it next, at these times and whenever a descriptor can be read, until
/// `is_over`; at least once. The thread gets the name. The descriptors' `revents` say which can. It asks `is_over`
/// every few milliseconds.
template <typename Work, typename IsOver>
void Serve(const char* name, std::vector<pollfd>& descriptors, const EpisodeClock& clock, Work&& work,
           IsOver&& is_over) {
  constexpr Nanoseconds kLongestWait = 5 * kMillisecond;
  pthread_setname_np(pthread_self(), name);
  prctl(PR_SET_TIMERSLACK, 1000);  // ns
  do {
    const Nanoseconds next = work();
    // Near its time the thread stays awake: going to sleep and waking costs as much.
    const Nanoseconds nap = std::clamp<Nanoseconds>(next - kWakeUp - clock.Now(), 0, kLongestWait);
    const timespec timeout{.tv_sec = 0, .tv_nsec = nap};
    ppoll(descriptors.data(), descriptors.size(), &timeout, nullptr);
  } while (!is_over());
}

}  // namespace bbrgym
