#pragma once

#include <memory>
#include <optional>
#include <string>

#include "envs/linux/command.h"
#include "envs/model/scenario.h"

namespace bbrgym {

/// The two ends of a flow of the algorithm `command`: somebody else's server and client.
class CommandFlow {
 public:
  struct Place {
    const NetworkNamespace* server_side;
    const NetworkNamespace* client_side;
    std::string address;  ///< of the server
    int port;
  };

  /// Starts the server. `name` is what errors call the flow. `seconds`: how long the client may take.
  CommandFlow(const Flow& flow, std::string name, Place place, double seconds);

  /// Returns when something listens at the server's port. Throws std::runtime_error if the server ends, or takes long.
  void AwaitServer() const;
  /// Starts the client at `start`; it is asked to end at `stop`.
  void StartClient(const EpisodeClock& clock, Nanoseconds start, Nanoseconds stop);

  /// When the client ended; nothing before. Throws std::runtime_error if one end failed.
  std::optional<Nanoseconds> End() const;
  /// Asks both to end. After a while the caller may destroy this, which kills them.
  void Terminate();
  bool IsOver() const;

 private:
  [[noreturn]] void Fail(const std::string& what, const Command& command) const;

  std::string name_;
  Place place_;
  std::vector<std::string> client_arguments_;
  std::unique_ptr<Command> server_;
  std::unique_ptr<Command> client_;
};

}  // namespace bbrgym
