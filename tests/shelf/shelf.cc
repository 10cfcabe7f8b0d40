#include "tests/shelf/shelf.h"

#include <chrono>
#include <cstdint>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "tests/net/fault_proxy.h"
#include "tests/shelf/network_shelf.h"
#include "tests/support/free_port.h"

namespace outboard::test {
namespace {

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
  return links == ShelfLinks::kNetworks ? NetworkShelf::WhyNot() : "";
}

absl::StatusOr<std::unique_ptr<Shelf>> Shelf::Make(const ShelfOptions& options) {
  if (options.links == ShelfLinks::kNetworks) return NetworkShelf::Make(options);
  return std::make_unique<ProxyShelf>(options);
}

}  // namespace outboard::test
