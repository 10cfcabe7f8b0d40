// Network devices of the machine, by the kernel's own calls: up, an address, a way out. For process
// 1 alone, since they change the machine.
//
// Threads: one.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/init/dhcp_packet.h"

namespace outboard::worker {

absl::Status BringUp(const std::string& device);
absl::StatusOr<MacAddress> MacOf(const std::string& device);
// Sets address, netmask, MTU, the default way and /etc/resolv.conf as the answer says.
absl::Status Configure(const std::string& device, const DhcpAnswer& answer);
absl::Status RemoveAddress(const std::string& device);

// A socket for DHCP on one device, which needs no address: broadcasts alone.
class DhcpSocket {
 public:
  static absl::StatusOr<DhcpSocket> Open(const std::string& device);
  DhcpSocket(DhcpSocket&& other) noexcept;
  DhcpSocket& operator=(DhcpSocket&&) = delete;
  ~DhcpSocket();

  int fd() const { return fd_; }
  absl::Status Send(std::string_view packet);
  std::string Receive();  // one packet; "" where there is none

 private:
  explicit DhcpSocket(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace outboard::worker
