#include "envs/linux/command_flow.h"

#include <cmath>
#include <ctime>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace bbrgym {

namespace {

// Interpreters take seconds on a busy machine. The engine waits for longer (`timeout_s`).
constexpr Nanoseconds kServerStart = 8 * kSecond;

/// Replaces each `{name}`. `bbrgym.envs.scenario` has checked that there are no others.
std::vector<std::string> Fill(std::vector<std::string> arguments, const std::map<std::string, std::string>& values) {
  for (std::string& argument : arguments) {
    for (const auto& [name, value] : values) {
      const std::string place = "{" + name + "}";
      for (std::size_t at = argument.find(place); at != std::string::npos; at = argument.find(place, at)) {
        argument.replace(at, place.size(), value);
        at += value.size();
      }
    }
  }
  return arguments;
}

/// Whether a socket of this thread's network namespace is bound to the UDP port, or listens at the TCP port.
bool IsListening(int port) {
  for (const char* protocol : {"udp", "udp6", "tcp", "tcp6"}) {
    std::ifstream table(std::string("/proc/thread-self/net/") + protocol);
    std::string line;
    std::getline(table, line);
    while (std::getline(table, line)) {
      std::istringstream fields(line);
      std::string slot;
      std::string local;
      std::string remote;
      std::string state;
      fields >> slot >> local >> remote >> state;
      const bool is_at_port = std::stoi(local.substr(local.rfind(':') + 1), nullptr, 16) == port;
      if (is_at_port && (protocol[0] == 'u' || state == "0A")) return true;  // 0A: LISTEN
    }
  }
  return false;
}

}  // namespace

CommandFlow::CommandFlow(const Flow& flow, std::string name, Place place, double seconds)
    : name_(std::move(name)), place_(std::move(place)) {
  std::map<std::string, std::string> values{{"address", place_.address},
                                            {"port", std::to_string(place_.port)},
                                            {"seconds", std::to_string(static_cast<int>(std::ceil(seconds)))}};
  if (flow.size_bytes) values["bytes"] = std::to_string(*flow.size_bytes);
  client_arguments_ = Fill(flow.client, values);
  server_ =
      std::make_unique<Command>(Fill(flow.server, values), *place_.server_side, EpisodeClock(), Nanoseconds{0}, kNever);
}

void CommandFlow::AwaitServer() const {
  const Nanoseconds limit = MonotonicNow() + kServerStart;
  const std::string port = "port " + std::to_string(place_.port) + " of " + place_.address;
  for (;;) {
    bool is_listening = false;
    place_.server_side->Run([&] { is_listening = IsListening(place_.port); });
    if (is_listening) return;
    if (const auto ending = server_->ending()) {
      Fail("the server ended with status " + std::to_string(ending->status) + " before it listened at " + port,
           *server_);
    }
    if (MonotonicNow() > limit) {
      Fail("the server did not listen at " + port + " within " + std::to_string(kServerStart / kSecond) + " s",
           *server_);
    }
    constexpr timespec kNap{.tv_sec = 0, .tv_nsec = 10'000'000};
    nanosleep(&kNap, nullptr);
  }
}

void CommandFlow::StartClient(const EpisodeClock& clock, Nanoseconds start, Nanoseconds stop) {
  client_ = std::make_unique<Command>(client_arguments_, *place_.client_side, clock, start, stop);
}

std::optional<Nanoseconds> CommandFlow::End() const {
  const auto client = client_->ending();
  if (client && client->status != 0) Fail("the client ended with status " + std::to_string(client->status), *client_);
  if (client) return client->time;
  // A server that serves one client may end a moment before it.
  const auto server = server_->ending();
  if (server && server->status != 0) Fail("the server ended with status " + std::to_string(server->status), *server_);
  return std::nullopt;
}

void CommandFlow::Terminate() {
  if (client_) client_->Terminate();
  server_->Terminate();
}

bool CommandFlow::IsOver() const {
  return server_->IsOver() && (!client_ || client_->IsOver());
}

void CommandFlow::Fail(const std::string& what, const Command& command) const {
  const std::string lines = command.LastLines();
  throw std::runtime_error(name_ + ": " + what +
                           (lines.empty() ? "; its standard error is empty" : "; its last lines: " + lines));
}

}  // namespace bbrgym
