// Nodes on one machine: network namespaces that reach each other over links of a given rate and
// delay, as machines would over Ethernet. What runs in them shares this machine's files, so a
// gateway outside is reached by a unix socket, and only data between nodes passes the links.
//
//   node 0 ---- tbf ---- bridge ---- tbf ---- node 1     rate: veth, each node's sending
//   node 0 ---- a thread that holds packets ---- node 1  delay: two nodes, TAP devices
//
// Errors: UNAVAILABLE, with the command that failed.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace outboard::test {

struct ShelfOptions {
  int nodes = 2;
  double gbit_per_s = 0;  // that each node can send; 0: as fast as this machine is
  double delay_ms = 0;    // one way, of two nodes; has no rate
};

class Shelf {
 public:
  // Why this machine cannot have one; "": it can.
  static std::string WhyNot();
  static absl::StatusOr<std::unique_ptr<Shelf>> Make(const ShelfOptions& options);
  ~Shelf();  // removes the namespaces; what still runs in them keeps its own
  Shelf(const Shelf&) = delete;
  Shelf& operator=(const Shelf&) = delete;

  // Words before a command line that is to run on a node: its process has the same pid.
  std::vector<std::string> In(int node) const;
  std::string address(int node) const;  // "10.231.7.1"
  // Enters the node's network with the calling thread, and the processes that it starts.
  absl::Status Enter(int node) const;

 private:
  Shelf() = default;
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
