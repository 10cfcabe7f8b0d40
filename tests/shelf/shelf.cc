#include "tests/shelf/shelf.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "tests/net/fault_proxy.h"
#include "tests/shelf/network_shelf.h"
#include "tests/shelf/paced_sockets.h"
#include "tests/support/free_port.h"
#include "tests/support/paths.h"

namespace outboard::test {
namespace {

// A library that is loaded first would come before a sanitizer's.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

// Seconds until 4 MiB have passed a connection that may send `bytes_per_s`.
absl::StatusOr<double> PacedSeconds(uint64_t bytes_per_s) {
  constexpr size_t kBytes = 4 << 20;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  const auto at = reinterpret_cast<sockaddr*>(&address);
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
            to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int from = -1;
  if (setsockopt(listener, SOL_SOCKET, SO_MAX_PACING_RATE, &bytes_per_s, sizeof bytes_per_s) == 0 &&
      bind(listener, at, length) == 0 && listen(listener, 1) == 0 &&
      getsockname(listener, at, &length) == 0 && connect(to, at, length) == 0)
    from = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  const auto begin = std::chrono::steady_clock::now();
  size_t got = 0;
  if (from >= 0) {
    std::thread sender([&] {
      const std::string bytes(kBytes, 'x');
      (void)!send(from, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      shutdown(from, SHUT_WR);
    });
    std::string part(1 << 20, '\0');
    for (ssize_t count = 1; count > 0; got += static_cast<size_t>(std::max<ssize_t>(count, 0)))
      count = recv(to, part.data(), part.size(), 0);
    sender.join();
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  for (const int fd : {listener, to, from})
    if (fd >= 0) close(fd);
  if (got != kBytes) return absl::UnavailableError("no SO_MAX_PACING_RATE");
  return took.count();
}

class PacedShelf : public Shelf {
 public:
  static std::string WhyNot() {
    if (kIsSanitized) return "a sanitizer's library has to be loaded before any other";
    constexpr uint64_t kSlow = 20'000'000;
    const absl::StatusOr<double> seconds = PacedSeconds(kSlow);
    if (!seconds.ok()) return std::string(seconds.status().message());
    return *seconds > 0.1 ? "" : "this kernel's TCP does not pace";
  }
  explicit PacedShelf(const ShelfOptions& options)
      : bytes_per_s_(static_cast<uint64_t>(options.gbit_per_s * 1e9 / 8)) {
    OB_CHECK(options.delay_ms == 0);
  }
  ~PacedShelf() override { SetSocketRate(0); }

  std::vector<std::string> In(int) const override {
    if (bytes_per_s_ == 0) return {};
    return {"/usr/bin/env", std::string("LD_PRELOAD=") + test::kPacedSockets,
            absl::StrCat("SHELF_BYTES_PER_S=", bytes_per_s_)};
  }
  std::string address(int) const override { return "127.0.0.1"; }
  // The rate is that of the whole process, while the shelf is there.
  absl::Status Enter(int) const override {
    SetSocketRate(bytes_per_s_);
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> ReachedAt(const std::string& listening) override {
    return listening;
  }
  absl::StatusOr<std::vector<std::string>> DataAddressOptions(int node) override {
    return std::vector<std::string>{"--data-address", address(node) + ":0"};
  }

 private:
  const uint64_t bytes_per_s_;
};

class ProxyShelf : public Shelf {
 public:
  explicit ProxyShelf(const ShelfOptions& options)
      : shape_{.delay = std::chrono::microseconds(static_cast<int64_t>(options.delay_ms * 1e3)),
               .bytes_per_s = static_cast<uint64_t>(options.gbit_per_s * 1e9 / 8)} {}

  std::vector<std::string> In(int) const override { return {}; }
  std::string address(int) const override { return "127.0.0.1"; }
  absl::Status Enter(int) const override { return absl::OkStatus(); }
  absl::StatusOr<std::string> ReachedAt(const std::string& listening) override {
    try {
      proxies_.push_back(std::make_unique<FaultProxy>(listening));
    } catch (const std::runtime_error& error) {
      return absl::UnavailableError(error.what());
    }
    for (const Way way : {Way::kUp, Way::kDown}) proxies_.back()->SetShape(way, shape_);
    return proxies_.back()->address();
  }
  absl::StatusOr<std::vector<std::string>> DataAddressOptions(int node) override {
    // The proxy before a worker has to know the worker's port before it starts.
    const int port = FreePort();
    if (port < 0) return absl::UnavailableError("no port is free");
    const std::string listening = absl::StrCat(address(node), ":", port);
    OB_ASSIGN_OR_RETURN(const std::string advertised, ReachedAt(listening));
    return std::vector<std::string>{"--data-address", listening, "--advertise-data-address",
                                    advertised};
  }
  std::optional<uint64_t> bytes() const override {
    uint64_t sum = 0;
    for (const auto& proxy : proxies_) {
      const FaultProxy::Counters counters = proxy->counters();
      sum += counters.bytes_up + counters.bytes_down;
    }
    return sum;
  }

 private:
  const Shape shape_;
  std::vector<std::unique_ptr<FaultProxy>> proxies_;
};

}  // namespace

std::string Shelf::WhyNot(ShelfLinks links) {
  if (links == ShelfLinks::kPaced) return PacedShelf::WhyNot();
  return links == ShelfLinks::kNetworks ? NetworkShelf::WhyNot() : "";
}

absl::StatusOr<std::unique_ptr<Shelf>> Shelf::Make(const ShelfOptions& options) {
  if (options.links == ShelfLinks::kNetworks) return NetworkShelf::Make(options);
  if (options.links == ShelfLinks::kPaced) return std::make_unique<PacedShelf>(options);
  return std::make_unique<ProxyShelf>(options);
}

}  // namespace outboard::test
