#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "baselines/cc/controller.h"
#include "envs/model/scenario.h"
#include "envs/transport/app_source.h"
#include "envs/transport/sender.h"

/// What a scenario's flow becomes when its handshake is done.
namespace bbrgym {

/// The connection of a flow after a handshake that took `rtt`. `seed`: of everything random in its controller.
Connection MakeConnection(const Flow& flow, Bytes packet_bytes, Nanoseconds rtt, std::uint64_t seed);

/// Throws std::invalid_argument for an algorithm or parameter that does not exist, so that a bad name is refused before
/// the simulation and not in the middle of it. A file's own code does not run.
void CheckFlowController(const Flow& flow);

/// The flow's controller; `gains`: what an agent has chosen before. Throws as `CheckFlowController`.
std::unique_ptr<Controller> MakeFlowController(const Flow& flow, const Connection& connection,
                                               const std::optional<Gains>& gains);

/// Why the decisions of the controller of the flow with this index are void, in words; "" if they are not, or if there
/// is no controller yet.
std::string FaultOf(const Controller* controller, std::size_t flow);

/// When the flow's application writes, from `opened` on; nothing if all data is there at once.
std::optional<AppSource> MakeAppSource(const Flow& flow, const Connection& connection, Nanoseconds opened);

/// The flow's sender with its controller, whose handshake is done at `opened`; throws as `MakeFlowController`.
std::unique_ptr<Sender> MakeSender(const Flow& flow, const Connection& connection, const std::optional<Gains>& gains,
                                   Nanoseconds opened);

}  // namespace bbrgym
