// What an executor's core wants of the supervisor, over the control socket (proto/executor.proto):
// blobs for the session, and blobs of the session to be stored. The adapter between the core's
// actions and files.
//
// Threads: one, the session's.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "proto/executor.pb.h"
#include "worker/executor/executor_core.h"
#include "worker/executor/persist_writer.h"

namespace outboard::worker {

class SupervisorClient {
 public:
  using Tell = std::function<void(const proto::NodeEvent&)>;

  explicit SupervisorClient(Tell tell) : tell_(std::move(tell)) {}

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
  std::unique_ptr<PersistWriter> writer_;  // since Begin has named a folder
  std::string trouble_;                    // why nothing is stored, as said on stderr
};

}  // namespace outboard::worker
