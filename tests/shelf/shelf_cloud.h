// A gateway outside of a shelf, reached by a unix socket, and a worker on each of its nodes.
// Workers reach each other over the shelf's links alone.
// Its sessions have no snapshots: a loss ends them, and a step's time is its own.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/shelf/shelf.h"

namespace outboard::test {

struct ShelfCloudOptions {
  std::string outboard;    // the program
  int devices = 1;         // of each worker
  bool core_each = false;  // node i uses the processor's core i alone
};

class ShelfCloud {
 public:
  // `shelf` outlives it. Errors: UNAVAILABLE, with what a server printed.
  static absl::StatusOr<std::unique_ptr<ShelfCloud>> Start(Shelf& shelf, int nodes,
                                                           const ShelfCloudOptions& options);
  ~ShelfCloud();  // ends all, the workers first, and removes their folder
  ShelfCloud(const ShelfCloud&) = delete;
  ShelfCloud& operator=(const ShelfCloud&) = delete;

  const std::string& target() const { return target_; }
  const std::string& key() const { return key_; }
  pid_t worker(int node) const { return servers_[static_cast<size_t>(node) + 1]; }

 private:
  ShelfCloud() = default;
  absl::Status StartServer(std::vector<std::string> argv, const std::string& name);

  std::string folder_, target_, key_;
  std::vector<pid_t> servers_;  // the gateway, and the worker of each node
};

}  // namespace outboard::test
