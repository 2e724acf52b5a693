#include "envs/transport/connection.h"

#include "baselines/cc/controller_file.h"
#include "baselines/cc/registry.h"

namespace bbrgym {

Connection MakeConnection(const Flow& flow, Bytes packet_bytes, Nanoseconds rtt, std::uint64_t seed) {
  return {.packet_bytes = packet_bytes,
          .initial_cwnd = kInitialCwndPackets * packet_bytes,
          .initial_rtt = rtt,
          .seed = seed,
          .policy = flow.policy};
}

void CheckFlowController(const Flow& flow) {
  if (flow.file) {
    flow.file->Check(flow.parameters);
  } else {
    MakeController(flow.algorithm, Connection{}, flow.parameters);
  }
}

std::unique_ptr<Controller> MakeFlowController(const Flow& flow, const Connection& connection,
                                               const std::optional<Gains>& gains) {
  if (flow.file) return flow.file->Make(connection, flow.parameters);
  std::unique_ptr<Controller> controller = MakeController(flow.algorithm, connection, flow.parameters);
  if (gains) controller->Steer(gains->cwnd, gains->pacing);
  return controller;
}

std::string FaultOf(const Controller* controller, std::size_t flow) {
  const std::string* fault = controller ? controller->Fault() : nullptr;
  return fault ? "flows[" + std::to_string(flow) + "]: " + *fault : "";
}

std::optional<AppSource> MakeAppSource(const Flow& flow, const Connection& connection, Nanoseconds opened) {
  if (!flow.app_rate_mbps) return std::nullopt;
  return AppSource(flow, connection.packet_bytes, connection.seed, opened);
}

std::unique_ptr<Sender> MakeSender(const Flow& flow, const Connection& connection, const std::optional<Gains>& gains,
                                   Nanoseconds opened) {
  return std::make_unique<Sender>(MakeFlowController(flow, connection, gains), connection, flow.size_bytes, flow.Ect(),
                                  MakeAppSource(flow, connection, opened));
}

}  // namespace bbrgym
