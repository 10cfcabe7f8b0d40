// A proxy between two unix sockets whose connections a test can cut, as a network would.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace outboard {

class CutProxy {
 public:
  CutProxy(const std::string& listen_path, std::string target_path)
      : address_("unix:" + listen_path), target_(std::move(target_path)) {
    listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address = Address(listen_path);
    bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address);
    listen(listener_, 16);
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~CutProxy() {
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    Cut();
    for (std::thread& pump : pumps_) pump.join();
    for (int fd : fds_) close(fd);
    close(listener_);
  }

  const std::string& address() const { return address_; }

  // Every connection breaks; new ones are accepted.
  void Cut() {
    std::lock_guard lock(mutex_);
    for (int fd : fds_) shutdown(fd, SHUT_RDWR);
  }

 private:
  static sockaddr_un Address(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    return address;
  }

  void Accept() {
    for (int from; (from = accept(listener_, nullptr, nullptr)) >= 0;) {
      int to = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_un address = Address(target_);
      connect(to, reinterpret_cast<sockaddr*>(&address), sizeof address);
      std::lock_guard lock(mutex_);
      fds_.insert(fds_.end(), {from, to});
      pumps_.emplace_back([=] { Pump(from, to); });
      pumps_.emplace_back([=] { Pump(to, from); });
    }
  }

  static void Pump(int from, int to) {
    char buffer[65536];
    for (ssize_t got; (got = read(from, buffer, sizeof buffer)) > 0;) {
      for (ssize_t at = 0, wrote; at < got; at += wrote) {
        wrote = send(to, buffer + at, static_cast<size_t>(got - at), MSG_NOSIGNAL);
        if (wrote <= 0) break;
      }
    }
    shutdown(from, SHUT_RDWR);
    shutdown(to, SHUT_RDWR);
  }

  const std::string address_, target_;
  int listener_;
  std::mutex mutex_;
  std::vector<int> fds_;
  std::vector<std::thread> pumps_;
  std::thread acceptor_;
};

}  // namespace outboard
