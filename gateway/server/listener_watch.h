// Notices that a port of this process is not served any more. gRPC stops accepting for good when
// the process has had no descriptor left once, and says nothing: connections then stay in the
// kernel's queue. Whoever runs the process starts it again when it ends.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace outboard::gateway {

struct WatchOptions {
  std::chrono::milliseconds every{10'000};
  std::chrono::milliseconds answers_within{5'000};
  int failures = 3;  // in a row
  bool has_tls = false;  // the port then answers a TLS handshake
};

// Connects to the port now and then, as a client of HTTP/2 does, and waits for the first bytes of
// the answer (RFC 9113, 3.4).
// Threads: one of its own, which calls `on_dead` once.
class ListenerWatch {
 public:
  // `address`: "host:port", the host a number of IPv4; 0.0.0.0 stands for 127.0.0.1. Others are not
  // watched.
  ListenerWatch(const std::string& address, std::function<void()> on_dead,
                const WatchOptions& options = {});
  ~ListenerWatch();
  ListenerWatch(const ListenerWatch&) = delete;
  ListenerWatch& operator=(const ListenerWatch&) = delete;

 private:
  void Work(const std::string& host, int port);

  const std::function<void()> on_dead_;
  const WatchOptions options_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace outboard::gateway
