#include "envs/linux/network_namespace.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>

namespace bbrgym {

namespace {

/// Packets that wait for us in the device. If it dropped any, there would be a second bottleneck.
constexpr int kDeviceQueue = 20'000;

void WriteFile(const std::string& path, const std::string& value) {
  std::ofstream file(path);
  file << value << std::flush;
  if (!file) ThrowErrno("cannot write '" + value + "' to " + path);
}

/// Settings of TCP in the namespace of this thread.
void Configure(bool has_tcp_ecn) {
  const std::string ipv4 = "/proc/sys/net/ipv4/";
  WriteFile(ipv4 + "tcp_timestamps", "0");               // so that every full packet has 40 bytes beside its payload
  WriteFile(ipv4 + "tcp_ecn", has_tcp_ecn ? "1" : "2");  // 2: only if the peer asks
  WriteFile(ipv4 + "tcp_no_metrics_save", "1");          // so that no connection begins with what another has learned
}

/// Sets the queue's length over netlink: the ioctl for it is root's alone, even in a user namespace.
void SetQueue(const char* name) {
  struct {
    nlmsghdr header;
    ifinfomsg link;
    rtattr attribute;
    std::uint32_t length;
  } request{};
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = RTM_NEWLINK;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
  request.link.ifi_index = static_cast<int>(if_nametoindex(name));
  request.attribute.rta_type = IFLA_TXQLEN;
  request.attribute.rta_len = RTA_LENGTH(sizeof(request.length));
  request.length = kDeviceQueue;
  const FileDescriptor netlink(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  struct {
    nlmsghdr header;
    nlmsgerr error;
    std::array<char, 512> rest;
  } answer{};
  if (send(netlink.get(), &request, sizeof(request), 0) < 0 || recv(netlink.get(), &answer, sizeof(answer), 0) < 0) {
    ThrowErrno("cannot set the queue of a TUN device");
  }
  if (answer.error.error != 0) {
    errno = -answer.error.error;
    ThrowErrno("cannot set the queue of a TUN device");
  }
}

FileDescriptor OpenTun() {
  FileDescriptor device(open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (device.get() >= 0) return device;
  const bool is_missing = errno == ENOENT || errno == ENODEV || errno == ENXIO;
  ThrowErrno(is_missing ? "cannot open /dev/net/tun (as root: modprobe tun; for a container: --device /dev/net/tun)"
                        : "cannot open /dev/net/tun (as root: chmod 666 /dev/net/tun, which lets users make devices in "
                          "namespaces of their own)");
}

void SetUp(int device, const std::string& address, const std::string& peer, int mtu) {
  ifreq request{};
  std::strcpy(request.ifr_name, "tun0");
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  if (ioctl(device, TUNSETIFF, &request) != 0) ThrowErrno("cannot make a TUN device");
  const FileDescriptor control(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto configure = [&](unsigned long what, const std::string& name) {
    if (ioctl(control.get(), what, &request) != 0) ThrowErrno("cannot set " + name + " of a TUN device");
  };
  const auto set_address = [&](unsigned long what, const std::string& text) {
    const sockaddr_in given = SocketAddress(text, 0);
    std::memcpy(&request.ifr_addr, &given, sizeof(given));
    configure(what, "the address " + text);
  };
  set_address(SIOCSIFADDR, address);
  set_address(SIOCSIFDSTADDR, peer);
  request.ifr_mtu = mtu;
  configure(SIOCSIFMTU, "the MTU");
  SetQueue(request.ifr_name);
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  configure(SIOCSIFFLAGS, "the state");
}

}  // namespace

void ThrowErrno(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

sockaddr_in SocketAddress(const std::string& address, int port) {
  sockaddr_in made{};
  made.sin_family = AF_INET;
  made.sin_port = htons(static_cast<std::uint16_t>(port));
  if (inet_pton(AF_INET, address.c_str(), &made.sin_addr) != 1) {
    throw std::invalid_argument("'" + address + "' is not an IPv4 address");
  }
  return made;
}

NetworkNamespace::NetworkNamespace(const std::string& address, const std::string& peer, int mtu, bool has_tcp_ecn) {
  std::exception_ptr error;
  std::thread([&] {
    try {
      if (unshare(CLONE_NEWNET) != 0) {
        ThrowErrno("cannot make a network namespace (see sysctl user.max_net_namespaces)");
      }
      Configure(has_tcp_ecn);
      namespace_ = FileDescriptor(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
      device_ = OpenTun();
      SetUp(device_.get(), address, peer, mtu);
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
}

void NetworkNamespace::Enter() const {
  if (setns(namespace_.get(), CLONE_NEWNET) != 0) ThrowErrno("cannot enter a network namespace");
}

void EnterUserNamespace() {
  // Whether it is needed, only an attempt tells: a container's root may have no right to make namespaces.
  bool is_allowed = false;
  std::thread([&] { is_allowed = unshare(CLONE_NEWNET) == 0; }).join();
  if (is_allowed) return;
  const uid_t user = geteuid();
  const gid_t group = getegid();
  if (unshare(CLONE_NEWUSER) != 0) {
    ThrowErrno(
        "cannot make a network namespace, nor a user namespace in which to make one (run as root with CAP_SYS_ADMIN; "
        "or, as root: sysctl user.max_user_namespaces=10000, and where they exist "
        "kernel.unprivileged_userns_clone=1 and kernel.apparmor_restrict_unprivileged_userns=0)");
  }
  WriteFile("/proc/self/setgroups", "deny");
  WriteFile("/proc/self/uid_map", "0 " + std::to_string(user) + " 1");
  WriteFile("/proc/self/gid_map", "0 " + std::to_string(group) + " 1");
}

}  // namespace bbrgym
