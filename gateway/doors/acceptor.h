// Accepts the connections of a TCP address and decides which of them gRPC gets. gRPC's own listener
// asks nobody, and stops for good once the process has no descriptor left.
//
// Threads: one of its own, from Start to the end; the rest as GrpcListener.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/doors/connection_table.h"

namespace outboard::gateway {

class Acceptor {
 public:
  // Listens at "host:port" (port 0: any), of each address that the host stands for; "[::]" is all
  // of IPv4 and IPv6. Connections wait in the kernel until Start.
  // Errors: UNAVAILABLE  why not, for people: the address is taken, or is none of this machine's
  static absl::StatusOr<std::unique_ptr<Acceptor>> Listen(const std::string& address);
  ~Acceptor();  // `take` is not called afterwards
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Calls `take` with each connection that `table` lets in; it owns `fd`, which does not block.
  // `table` must outlive the acceptor.
  void Start(ConnectionTable* table, std::function<void(int listener_fd, int fd)> take);

  const std::string& address() const { return address_; }  // with the port that was chosen

 private:
  Acceptor() = default;
  absl::Status Bind(const std::string& host, const std::string& port);
  void Work();
  bool AcceptFrom(int listener);

  std::string address_;
  std::vector<int> listeners_;
  int wake_fd_ = -1;
  ConnectionTable* table_ = nullptr;
  std::function<void(int listener_fd, int fd)> take_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace outboard::gateway
