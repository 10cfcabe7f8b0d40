#include "worker/init/network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <net/route.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace outboard::worker {
namespace {

constexpr uint16_t kServerPort = 67, kClientPort = 68;
constexpr size_t kPacketBytesMax = 2048;

// A socket for ioctl, closed at the end of the scope.
class ControlSocket {
 public:
  ControlSocket() : fd_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {}
  ~ControlSocket() {
    if (fd_ >= 0) close(fd_);
  }
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

absl::Status Failed(const std::string& device, const char* what) {
  return absl::UnavailableError(absl::StrCat(device, ": ", what, ": ", strerror(errno)));
}

ifreq RequestFor(const std::string& device) {
  ifreq request{};
  std::strncpy(request.ifr_name, device.c_str(), IFNAMSIZ - 1);
  return request;
}

sockaddr AddressOf(Ipv4 address, uint16_t port = 0) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(port);
  in.sin_addr.s_addr = htonl(address);
  sockaddr out{};
  std::memcpy(&out, &in, sizeof in);
  return out;
}

absl::Status SetAddress(const std::string& device, unsigned long what, Ipv4 address,
                        const char* word) {
  const ControlSocket control;
  ifreq request = RequestFor(device);
  request.ifr_addr = AddressOf(address);
  if (ioctl(control.fd(), what, &request) == 0) return absl::OkStatus();
  return Failed(device, word);
}

// The resolver's file, replaced at once.
absl::Status WriteResolvers(const std::vector<Ipv4>& servers) {
  std::string text;
  for (const Ipv4 server : servers) absl::StrAppend(&text, "nameserver ", ToString(server), "\n");
  constexpr char kPath[] = "/etc/resolv.conf", kNew[] = "/etc/resolv.conf.new";
  const int fd = open(kNew, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const bool written =
      fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (fd >= 0) close(fd);
  if (written && rename(kNew, kPath) == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(kPath, ": ", strerror(errno)));
}

}  // namespace

absl::Status BringUp(const std::string& device) {
  const ControlSocket control;
  ifreq request = RequestFor(device);
  if (ioctl(control.fd(), SIOCGIFFLAGS, &request) != 0) return Failed(device, "its flags");
  request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP);
  if (ioctl(control.fd(), SIOCSIFFLAGS, &request) != 0) return Failed(device, "does not come up");
  return absl::OkStatus();
}

absl::StatusOr<MacAddress> MacOf(const std::string& device) {
  const ControlSocket control;
  ifreq request = RequestFor(device);
  if (ioctl(control.fd(), SIOCGIFHWADDR, &request) != 0) return Failed(device, "its address");
  MacAddress mac;
  std::memcpy(mac.data(), request.ifr_hwaddr.sa_data, mac.size());
  return mac;
}

absl::Status RemoveAddress(const std::string& device) {
  return SetAddress(device, SIOCSIFADDR, 0, "keeps its address");
}

absl::Status Configure(const std::string& device, const DhcpAnswer& answer) {
  if (answer.mtu > 0) {
    const ControlSocket control;
    ifreq request = RequestFor(device);
    request.ifr_mtu = answer.mtu;
    // One that the device does not take changes nothing.
    static_cast<void>(ioctl(control.fd(), SIOCSIFMTU, &request));
  }
  absl::Status status = SetAddress(device, SIOCSIFADDR, answer.address, "takes no address");
  if (status.ok())
    status =
        SetAddress(device, SIOCSIFNETMASK, static_cast<Ipv4>(~uint64_t{0} << (32 - answer.prefix)),
                   "takes no netmask");
  if (status.ok() && answer.router != 0) {
    const ControlSocket control;
    rtentry route{};
    route.rt_dst = AddressOf(0);
    route.rt_genmask = AddressOf(0);
    route.rt_gateway = AddressOf(answer.router);
    route.rt_flags = RTF_UP | RTF_GATEWAY;
    std::string name = device;
    route.rt_dev = name.data();
    if (ioctl(control.fd(), SIOCADDRT, &route) != 0 && errno != EEXIST)
      status = Failed(device, "no default route can be set");
  }
  if (status.ok() && !answer.dns.empty()) status = WriteResolvers(answer.dns);
  return status;
}

absl::StatusOr<DhcpSocket> DhcpSocket::Open(const std::string& device) {
  DhcpSocket made(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (made.fd_ < 0) return Failed(device, "no socket");
  const int yes = 1;
  setsockopt(made.fd_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (setsockopt(made.fd_, SOL_SOCKET, SO_BROADCAST, &yes, sizeof yes) != 0 ||
      setsockopt(made.fd_, SOL_SOCKET, SO_BINDTODEVICE, device.c_str(),
                 static_cast<socklen_t>(device.size())) != 0)
    return Failed(device, "no socket for broadcasts");
  const sockaddr own = AddressOf(INADDR_ANY, kClientPort);
  if (bind(made.fd_, &own, sizeof own) != 0) return Failed(device, "no port for DHCP");
  return made;
}

DhcpSocket::DhcpSocket(DhcpSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
DhcpSocket::~DhcpSocket() {
  if (fd_ >= 0) close(fd_);
}

absl::Status DhcpSocket::Send(std::string_view packet) {
  const sockaddr everybody = AddressOf(INADDR_BROADCAST, kServerPort);
  if (sendto(fd_, packet.data(), packet.size(), 0, &everybody, sizeof everybody) ==
      static_cast<ssize_t>(packet.size()))
    return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("a DHCP message is not sent: ", strerror(errno)));
}

std::string DhcpSocket::Receive() {
  std::string packet(kPacketBytesMax, '\0');
  const ssize_t count = recv(fd_, packet.data(), packet.size(), 0);
  packet.resize(count > 0 ? static_cast<size_t>(count) : 0);
  return packet;
}

}  // namespace outboard::worker
