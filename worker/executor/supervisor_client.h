// Sends the requests of an executor's core to the supervisor, over the control socket
// (proto/executor.proto): blobs to fetch, and blobs to store. Adapts the core's actions to files.
//
// Threads: one, the session's.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "proto/executor.pb.h"
#include "worker/executor/executor_core.h"
#include "worker/executor/persist_writer.h"

namespace outboard::worker {

class SupervisorClient {
 public:
  using Tell = std::function<void(const proto::FromExecutor&)>;

  explicit SupervisorClient(Tell tell) : tell_(std::move(tell)) {}

  // `passed`: the descriptor that came with the command, which is closed; -1: none.
  void OnCommand(const proto::ToExecutor& command, int passed, ExecutorCore& core, Engine& engine,
                 const ExecutorCore::SendFrame& send);
  // Carries out the core's pending requests. Call after every event of the core, and when
  // `patience` has passed.
  void SendPending(ExecutorCore& core, const ExecutorCore::SendFrame& send);
  // Returns how long SendPending need not be called; nullopt: until the next event.
  std::optional<std::chrono::milliseconds> patience(const ExecutorCore& core) const;
  // As ExecutorOptions::let_go.
  void LetGo();
  // Reports what this process has counted for /metrics (telemetry/counters.h) and not yet said.
  // SendPending does so every kCountsEveryMs; call it when the session is over.
  void TellCounts();

 private:
  void OnStored(proto::Stored stored, ExecutorCore& core, const ExecutorCore::SendFrame& send);
  void NotWritten(uint64_t id, const absl::Status& why, ExecutorCore& core,
                  const ExecutorCore::SendFrame& send);

  void TellPart();
  BlobWant TakeSent(const std::string& root);

  const Tell tell_;
  std::deque<BlobWant> wants_;             // not sent yet
  std::map<std::string, std::deque<BlobWant>> sent_wants_;  // not answered, by root
  size_t wants_in_flight_ = 0;             // sent, at most kBlobWantsMax
  std::unique_ptr<PersistWriter> writer_;  // created when StoreFile comes
  std::deque<proto::StoreBlobs> parts_;    // of the result under way, not told yet
  uint64_t sent_bytes_ = 0;                // of those that were answered
  std::string trouble_;                    // the storage error last logged
  int64_t counted_ms_ = 0;                 // when counts were last reported
  bool may_count_ = false;                 // something may have been counted since
};

}  // namespace outboard::worker
