#pragma once

#include <netinet/in.h>

#include <exception>
#include <string>
#include <thread>

#include "envs/linux/file_descriptor.h"

namespace bbrgym {

/// A network namespace of its own, with one TUN device. It ends with this object, and with this process.
class NetworkNamespace {
 public:
  /// `address` and `peer` are the two ends of the device, which takes packets of up to `mtu` bytes. `has_tcp_ecn`:
  /// whether TCP here asks for ECN. Throws std::runtime_error that says what is missing: a privilege, the device, a
  /// setting.
  NetworkNamespace(const std::string& address, const std::string& peer, int mtu, bool has_tcp_ecn = false);

  /// The device: a read takes a packet that was sent here, a write delivers one. It does not block.
  int device() const { return device_.get(); }

  /// Calls `work` in the namespace, where it can make sockets, on a thread of its own. Passes on its exception.
  template <typename Work>
  void Run(Work&& work) const {
    std::exception_ptr error;
    std::thread([&] {
      try {
        Enter();
        work();
      } catch (...) {
        error = std::current_exception();
      }
    }).join();
    if (error) std::rethrow_exception(error);
  }

 private:
  void Enter() const;

  FileDescriptor namespace_;
  FileDescriptor device_;
};

/// Gives this process a user namespace in which it may make network namespaces, unless it may already. To be called
/// while it has one thread. Throws std::runtime_error if the system does not allow it.
void EnterUserNamespace();

/// An IPv4 address and port.
sockaddr_in SocketAddress(const std::string& address, int port);

/// Throws std::runtime_error: what failed, and errno in words.
[[noreturn]] void ThrowErrno(const std::string& what);

}  // namespace bbrgym
