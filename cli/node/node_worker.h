// The worker of a machine that booted over the network: what process 1 has left for it
// (worker/init/node_init.h), and its log on the way to the gateway.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/commands.h"
#include "proto/fleet.grpc.pb.h"
#include "worker/init/log_sender.h"
#include "worker/supervisor/join/enrolment.h"

namespace outboard::cli {

struct NodeStart {
  proto::NodeFacts facts;
  std::string claim;               // empty: none
  std::optional<std::string> tpm;  // where it is (worker/tpm/node_tpm.h)
};

// None where `flags` has no --node-folder. Sets the name and the identity's file in `flags`, which
// they are for a node.
// Errors: INVALID_ARGUMENT  the machine has no serial number; a claim that cannot be read
absl::StatusOr<std::optional<NodeStart>> StartOfNode(ServerFlags& flags);

// Tells process 1 that the node has joined: one that boots an image on trial then stays.
void NoteJoined(const std::string& node_folder);

// Drivers of a vendor's (worker/init/node_driver.h): a node joins and serves its CPUs, fetches what
// the gateway has named beside that, and hands its sessions on; process 1 starts its worker again,
// which begins with the driver's library and serves the GPUs.

// Where a driver with NVIDIA's library is mounted, and this process was started without it: starts
// this process again, with the library on its path and OUTBOARD_DEVICE=auto. Returns where there is
// nothing to do. `kept`: descriptors that stay open across it, since its arguments name them by
// their numbers; -1: none.
void StartWithDriver(const std::string& node_folder, const std::vector<int>& kept);

// The worker of a node ended with `why`: where a gateway has refused its GPUs for good (of no class
// in the price file, or they fall short), notes so and returns true. StartWithDriver then leaves
// them, so that the machine goes on serving its CPUs, until it starts again.
bool LeaveGpus(const std::string& node_folder, const absl::Status& why);

// Threads: one, but for IsReady.
class DriverFetch {
 public:
  // Looks at what `enrolment` was told, before anybody else uses it. `on_ready` is called on a
  // thread of this one's, once a driver is mounted with which the worker should start again. Where
  // none comes, a line says why, and that the machine serves with its CPUs.
  DriverFetch(const worker::Enrolment& enrolment, const NodeStart& start, std::string node_folder,
              std::function<void()> on_ready);
  // Of the driver that is here or may come: sessions are not to have it. Before Begin.
  uint64_t memory_bytes() const;
  // The node has joined. `on_none` is called on a thread of this one's once it is certain that no
  // driver comes before the next start of the worker: sessions may have its memory.
  void Begin(std::function<void()> on_none);
  // Ends a fetch; neither function is called after it.
  void End() { thread_ = {}; }
  bool IsReady() const { return is_ready_; }

 private:
  void Fetch(std::stop_token stop, const std::function<void()>& on_none);
  static void SayWithout(const std::string& why);

  const std::string kernel_, node_folder_, boot_server_;  // that it has booted from; "": unknown
  const std::function<void()> on_ready_;
  std::optional<proto::NodeDriver> named_;
  std::atomic<bool> is_ready_{false};
  std::jthread thread_;  // last: it uses the others
};

// Sends the node's log by the newest connection with a certificate. Threads: any.
class NodeLogStream {
 public:
  explicit NodeLogStream(const std::string& node_folder);
  void Use(std::shared_ptr<grpc::Channel> channel);

 private:
  absl::Status Send(const std::vector<std::string>& lines);

  std::mutex mutex_;
  std::shared_ptr<grpc::Channel> channel_;
  worker::LogSender sender_;  // last: it calls Send
};

}  // namespace outboard::cli
