// What an executor's core wants of the supervisor, over the control socket (proto/node.proto): blobs for the
// session, and blobs of the session to be stored. The adapter between the core's actions and files.
//
// Threads: one, the session's.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "proto/node.pb.h"
#include "worker/executor_core.h"
#include "worker/snapshot_writer.h"

namespace outboard::worker {

class NodeRequests {
 public:
  using Tell = std::function<void(const proto::NodeEvent&)>;

  explicit NodeRequests(Tell tell) : tell_(std::move(tell)) {}

  void OnCommand(const proto::NodeCommand& command, ExecutorCore& core, Engine& engine,
                 const ExecutorCore::SendFrame& send);
  // After whatever has happened to the core, and when `patience` is over.
  void Turn(ExecutorCore& core, const ExecutorCore::SendFrame& send);
  // How long Turn can wait; nullopt: until something happens.
  std::optional<std::chrono::milliseconds> patience(const ExecutorCore& core) const;
  // See ExecutorOptions.
  void LetGo();

 private:
  void Stored(const proto::Stored& stored, ExecutorCore& core, const ExecutorCore::SendFrame& send);

  const Tell tell_;
  std::unique_ptr<SnapshotWriter> writer_;  // since Begin has named a folder
  std::string trouble_;                     // why nothing is stored, as said on stderr
};

}  // namespace outboard::worker
