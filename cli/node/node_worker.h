// The worker of a machine that booted over the network: what process 1 has left for it
// (worker/init/node_init.h), and its log on the way to the gateway.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cli/commands.h"
#include "proto/fleet.grpc.pb.h"
#include "worker/init/log_sender.h"
#include "worker/node/enrolment.h"

namespace outboard::cli {

struct NodeStart {
  proto::NodeFacts facts;
  std::string claim;  // empty: none
};

// None where `flags` has no --node-folder. Sets the name and the identity's file in `flags`, which
// they are for a node.
// Errors: INVALID_ARGUMENT  the machine has no serial number; a claim that cannot be read
absl::StatusOr<std::optional<NodeStart>> StartOfNode(ServerFlags& flags);

// Tells process 1 that the node has joined: one that boots an image on trial then stays.
void NoteJoined(const std::string& node_folder);

// Drivers of a vendor's (worker/init/node_driver.h). FetchDriver brings what the gateway has named
// to a node that has just enrolled: true where it is mounted now. Else a line says why, and that
// the machine serves with its CPUs.
bool FetchDriver(const worker::Enrolment& enrolment, const NodeStart& start,
                 const std::string& node_folder);
// Where one is mounted, and this process was started without it: starts this process again, with
// the driver's libraries on its path. Returns where there is nothing to do.
void StartWithDriver(const std::string& node_folder);

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
