// A listening abstract unix socket (unix(7)): reachable from this machine's network namespace, gone
// with the process, no file to remove.
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
  // `on_connection` is called from a thread of the listener's with each connection, which is then
  // the callee's.
  // Errors: UNAVAILABLE  the name is taken, or no socket can be made
  static absl::StatusOr<std::unique_ptr<AbstractListener>> Listen(
      std::string name, std::function<void(int fd)> on_connection);
  ~AbstractListener();  // no call follows
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
