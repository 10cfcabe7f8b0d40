#include "cli/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "absl/strings/numbers.h"

namespace outboard::cli {
namespace {

std::string Take(const char* name) {
  const char* const value = std::getenv(name);
  const std::string text = value != nullptr ? value : "";
  unsetenv(name);
  return text;
}

}  // namespace

ServiceManager& ServiceManager::OfProcess() {
  static ServiceManager manager;
  return manager;
}

ServiceManager::ServiceManager() : socket_(Take("NOTIFY_SOCKET")) {
  const std::string pid = Take("WATCHDOG_PID"), limit = Take("WATCHDOG_USEC");
  int64_t limit_us = 0, for_pid = 0;
  if (!absl::SimpleAtoi(limit, &limit_us) || limit_us <= 0) return;
  if (absl::SimpleAtoi(pid, &for_pid) && for_pid != getpid()) return;
  every_ = std::max(std::chrono::milliseconds(limit_us / 2000), std::chrono::milliseconds(1));
}

void ServiceManager::Ready() { Tell("READY=1"); }
void ServiceManager::Stopping() { Tell("STOPPING=1"); }
void ServiceManager::Alive() { Tell("WATCHDOG=1"); }

void ServiceManager::Tell(const std::string& text) const {
  sockaddr_un address{};
  if (socket_.size() < 2 || socket_.size() >= sizeof address.sun_path) return;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket_.data(), socket_.size());
  if (socket_.front() == '@') address.sun_path[0] = 0;  // an abstract socket
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
  // A manager that is gone is not this process's trouble.
  (void)sendto(fd, text.data(), text.size(), MSG_NOSIGNAL, reinterpret_cast<sockaddr*>(&address),
               length);
  close(fd);
}

}  // namespace outboard::cli
