// What the gateway does about its nodes each second: notes join tests, tells nodes what operators
// ask of them, notes which images have served, and steps the rollout.
//
// Threads: Start makes one, which Stop ends; OnTested from any; Tick from one, in tests.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/nodes/image_rows.h"
#include "gateway/nodes/node_orders.h"
#include "gateway/nodes/node_registry.h"

namespace outboard::gateway {

// The nodes that have joined, which the gateway's driver has. `drain`, `restart` and
// `set_aside` return whether the node is here.
struct NodeFleet {
  std::function<std::set<std::string>()> here;
  std::function<bool(const std::string& serial)> drain;
  std::function<bool(const std::string& serial, const std::string& why)> restart, set_aside;
  std::function<absl::Status(const std::string& serial)> power_cycle;
};

class NodeKeeper {
 public:
  // Errors: those of opening `accounts_path`
  static absl::StatusOr<std::unique_ptr<NodeKeeper>> Open(const std::string& accounts_path,
                                                          NodeFleet fleet);
  ~NodeKeeper();

  void Start();
  void Stop();  // asks `fleet` nothing more; also OnTested does nothing then
  // How the join test of a node ended. Does not wait.
  void OnTested(const std::string& serial, const absl::Status& result);
  // Errors: UNAVAILABLE  the accounts file; what is to be done is done at a later tick
  absl::Status Tick(WallTime now);

 private:
  NodeKeeper(std::unique_ptr<NodeRegistry> registry, std::unique_ptr<NodeOrders> orders,
             std::unique_ptr<ImageRows> images, NodeFleet fleet);
  void Work();
  absl::Status NoteTests(WallTime now);
  absl::Status TellOrders(WallTime now);
  absl::Status StepRollout(WallTime now);
  void Do(const RolloutAction& action);

  const std::unique_ptr<NodeRegistry> registry_;
  const std::unique_ptr<NodeOrders> orders_;
  const std::unique_ptr<ImageRows> images_;
  const NodeFleet fleet_;
  std::set<std::string> served_;  // images that were noted
  absl::Status trouble_;          // of the last tick
  std::mutex mutex_;
  std::condition_variable wake_;
  std::map<std::string, absl::Status> tested_;  // not noted yet, by serial number
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace outboard::gateway
