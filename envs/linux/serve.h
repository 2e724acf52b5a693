#pragma once

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <utility>
#include <vector>

#include "envs/linux/clock.h"

namespace bbrgym {

/// Real-time priorities: what holds everything up for a moment goes before what has much to do.
enum class Priority : std::uint8_t { kHosts = 1, kSteps, kEmulator };

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
  // A real-time thread sleeps at least a fifth of the time, in rests that cost no packet much. Linux takes 50 ms of
  // each second from a thread that never sleeps, for other work.
  constexpr Nanoseconds kMostTired = 400'000;
  constexpr timespec kRest{.tv_sec = 0, .tv_nsec = 100'000};
  pthread_setname_np(pthread_self(), name);
  prctl(PR_SET_TIMERSLACK, 1000);  // ns
  const bool is_real_time = sched_getscheduler(0) == SCHED_FIFO;
  Nanoseconds tired = 0;  // time awake less four times that asleep
  Nanoseconds woken = clock.Now();
  do {
    const Nanoseconds next = work();
    const Nanoseconds done = clock.Now();
    const bool must_rest = is_real_time && tired > kMostTired;
    if (must_rest) nanosleep(&kRest, nullptr);
    // Near its time the thread stays awake: going to sleep and waking costs as much.
    const Nanoseconds nap = must_rest ? 0 : std::clamp<Nanoseconds>(next - kWakeUp - done, 0, kLongestWait);
    const timespec timeout{.tv_sec = 0, .tv_nsec = nap};
    ppoll(descriptors.data(), descriptors.size(), &timeout, nullptr);
    const Nanoseconds last = std::exchange(woken, clock.Now());
    const Nanoseconds asleep = std::max<Nanoseconds>(woken - done - kWakeUp, 0);
    tired = std::clamp<Nanoseconds>(tired + woken - last - 5 * asleep, 0, 2 * kMostTired);
  } while (!is_over());
}

}  // namespace bbrgym
