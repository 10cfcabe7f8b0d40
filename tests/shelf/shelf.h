// Nodes on one machine that reach each other over links of a given rate or delay, as machines would
// over Ethernet. What runs in them shares this machine's files, so a gateway outside is reached by
// a unix socket, and only data between nodes passes the links. Of three kinds:
//
//   networks  each node is a network namespace. Needs root, and a kernel that has them
//
//     node 0 ---- tbf ---- bridge ---- tbf ---- node 1     rate: veth, each node's sending
//     node 0 ---- a thread that holds packets ---- node 1  delay: two nodes, TAP devices
//
//   paced     all nodes share the loopback, and the kernel's TCP spaces what each connection sends
//             (paced_sockets.h). Costs next to nothing; but there is no delay, and each connection
//             has the rate for itself
//   proxies   all nodes share the loopback, and a fault proxy stands before the address of each
//             node. Anywhere; but each connection has the rate for itself, and a proxy takes part
//             of the cores and passes some Gbit/s at most
//
// Errors: UNAVAILABLE, with the command that failed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace outboard::test {

enum class ShelfLinks { kNetworks, kPaced, kProxies };

struct ShelfOptions {
  int nodes = 2;
  double gbit_per_s = 0;  // that each node can send; 0: as fast as this machine is
  double delay_ms = 0;    // one way, of two nodes; has no rate
  ShelfLinks links = ShelfLinks::kNetworks;
};

class Shelf {
 public:
  // Why this machine cannot have one with links of this kind; "": it can.
  static std::string WhyNot(ShelfLinks links);
  static absl::StatusOr<std::unique_ptr<Shelf>> Make(const ShelfOptions& options);
  virtual ~Shelf() = default;
  Shelf() = default;
  Shelf(const Shelf&) = delete;
  Shelf& operator=(const Shelf&) = delete;

  // Words before a command line that is to run on a node: its process has the same pid.
  virtual std::vector<std::string> In(int node) const = 0;
  virtual std::string address(int node) const = 0;  // "10.231.7.1"
  // Enters the node's network with the calling thread, and the processes that it starts.
  virtual absl::Status Enter(int node) const = 0;
  // Where the other nodes connect to reach what listens at `listening`, HOST:PORT, of a node; good
  // as long as the shelf.
  virtual absl::StatusOr<std::string> ReachedAt(const std::string& listening) = 0;
  // Words of the command line of a node's worker, for data between nodes to pass the links.
  virtual absl::StatusOr<std::vector<std::string>> DataAddressOptions(int node) = 0;
  // That have passed the links so far, both ways; none where nobody counts them.
  virtual std::optional<uint64_t> bytes() const { return std::nullopt; }
};

}  // namespace outboard::test
