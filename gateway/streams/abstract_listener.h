// A listening abstract unix socket (unix(7)): reachable from this machine's network namespace,
// closed when the process ends, without a file to remove.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"

namespace outboard::gateway {

class AbstractListener {
 public:
  // Calls `on_connection` with each connection, from a thread of the listener; the callee owns
  // `fd`.
  // Errors: UNAVAILABLE  the name is taken, or no socket can be made
  static absl::StatusOr<std::unique_ptr<AbstractListener>> Listen(
      std::string name, std::function<void(int fd)> on_connection);
  ~AbstractListener();  // on_connection is not called afterwards
  AbstractListener(const AbstractListener&) = delete;
  AbstractListener& operator=(const AbstractListener&) = delete;

  const std::string& name() const { return name_; }

 private:
  AbstractListener(std::string name, int fd, std::function<void(int fd)> on_connection);
  void Accept();

  const std::string name_;
  const int fd_;
  const std::function<void(int fd)> on_connection_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace outboard::gateway
