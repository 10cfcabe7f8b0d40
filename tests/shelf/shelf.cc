#include "tests/shelf/shelf.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "tests/net/fault_proxy.h"
#include "tests/shelf/network_shelf.h"

namespace outboard::test {
namespace {

// The proxy before a worker has to know its port before the worker starts.
absl::StatusOr<int> FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{.sin_family = AF_INET,
                      .sin_port = 0,
                      .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)},
                      .sin_zero = {}};
  socklen_t size = sizeof address;
  const bool found = fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  if (fd >= 0) close(fd);
  if (!found) return absl::UnavailableError("no port is free");
  return ntohs(address.sin_port);
}

class ProxyShelf : public Shelf {
 public:
  explicit ProxyShelf(const ShelfOptions& options)
      : shape_{.delay = std::chrono::microseconds(static_cast<int64_t>(options.delay_ms * 1e3)),
               .bytes_per_s = static_cast<uint64_t>(options.gbit_per_s * 1e9 / 8)} {}

  std::vector<std::string> In(int) const override { return {}; }
  std::string address(int) const override { return "127.0.0.1"; }
  absl::Status Enter(int) const override { return absl::OkStatus(); }
  std::string ReachedAt(const std::string& listening) override {
    proxies_.push_back(std::make_unique<FaultProxy>(listening));
    for (const Way way : {Way::kUp, Way::kDown}) proxies_.back()->SetShape(way, shape_);
    return proxies_.back()->address();
  }
  absl::StatusOr<std::vector<std::string>> DataAddressOptions(int node) override {
    OB_ASSIGN_OR_RETURN(const int port, FreePort());
    const std::string listening = absl::StrCat(address(node), ":", port);
    return std::vector<std::string>{"--data-address", listening, "--advertise-data-address",
                                    ReachedAt(listening)};
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
  return links == ShelfLinks::kNetworks ? NetworkShelf::WhyNot() : "";
}

absl::StatusOr<std::unique_ptr<Shelf>> Shelf::Make(const ShelfOptions& options) {
  if (options.links == ShelfLinks::kNetworks) return NetworkShelf::Make(options);
  return std::make_unique<ProxyShelf>(options);
}

}  // namespace outboard::test
