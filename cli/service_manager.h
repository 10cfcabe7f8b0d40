// Tells a service manager how this process is doing (sd_notify(3)): a datagram to the socket that
// NOTIFY_SOCKET names. Needs no library of systemd's; without the variable nothing is sent.
// Threads: one.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace outboard::cli {

class ServiceManager {
 public:
  // Reads the variables, and unsets them: they are not for child processes.
  // Call before any thread starts.
  static ServiceManager& OfProcess();

  void Ready();
  void Stopping();
  void Alive();  // before WatchdogEvery is over, again and again
  // How often the manager wants to hear Alive; half of its limit.
  const std::optional<std::chrono::milliseconds>& watchdog_every() const { return every_; }

 private:
  ServiceManager();
  void Tell(const std::string& text) const;

  std::string socket_;
  std::optional<std::chrono::milliseconds> every_;
};

}  // namespace outboard::cli
