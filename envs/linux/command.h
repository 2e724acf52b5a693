#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "envs/linux/clock.h"
#include "envs/linux/network_namespace.h"
#include "envs/model/packet.h"

namespace bbrgym {

/// A command in a network namespace, with all processes that it starts. They have a process namespace of their own, so
/// that none outlives this object or this process, however that ends.
class Command {
 public:
  struct Ending {
    Nanoseconds time = 0;  ///< by the clock that it was made with
    int status = 0;        ///< as a shell has it: 128 and the signal's number, if one killed it
  };

  /// It starts at `start` of the clock. At `stop` it is asked to end (SIGTERM), and killed a second later. `side`
  /// outlives this.
  Command(std::vector<std::string> arguments, const NetworkNamespace& side, const EpisodeClock& clock,
          Nanoseconds start, Nanoseconds stop);
  /// Kills it.
  ~Command();

  /// Asks it to end, or never starts it.
  void Terminate() { is_asked_to_end_ = true; }
  /// How it ended; nothing while it runs. A command that was asked to end has the status 0. Throws std::runtime_error
  /// if it could not be started.
  std::optional<Ending> ending() const;
  /// Whether there is nothing left to wait for.
  bool IsOver() const { return is_over_; }
  /// The last lines of its standard error.
  std::string LastLines() const;

 private:
  void Supervise();
  void Watch(int process, int errors);
  /// Returns false at the end of what it writes.
  bool ReadErrors(int errors);

  std::vector<std::string> arguments_;
  EpisodeClock clock_;
  Nanoseconds start_;
  Nanoseconds stop_;
  std::atomic<bool> is_asked_to_end_ = false;
  std::atomic<bool> is_killed_ = false;
  std::atomic<bool> is_over_ = false;
  mutable std::mutex mutex_;  // guards what follows
  std::optional<Ending> ending_;
  std::string last_lines_;
  std::string failure_;
  std::thread thread_;
};

}  // namespace bbrgym
