// A shelf of network namespaces: shelf.h.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/shelf/shelf.h"

namespace outboard::test {

class NetworkShelf : public Shelf {
 public:
  static std::string WhyNot();
  static absl::StatusOr<std::unique_ptr<Shelf>> Make(const ShelfOptions& options);
  ~NetworkShelf() override;  // removes the namespaces; what still runs in them keeps its own

  std::vector<std::string> In(int node) const override;
  std::string address(int node) const override;
  absl::Status Enter(int node) const override;
  absl::StatusOr<std::string> ReachedAt(const std::string& listening) override {
    return listening;
  }
  absl::StatusOr<std::vector<std::string>> DataAddressOptions(int node) override;

 private:
  NetworkShelf() = default;
  absl::Status MakeBridge(const ShelfOptions& options);
  absl::Status MakeWire(double delay_ms);
  void Hold(double delay_ms);
  std::string NameOf(int node) const;

  int number_ = 0, nodes_ = 0;
  bool has_bridge_ = false;
  int taps_[2] = {-1, -1};
  std::atomic<bool> stopping_{false};
  std::thread wire_;
};

}  // namespace outboard::test
