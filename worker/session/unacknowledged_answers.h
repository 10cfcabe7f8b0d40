// The answers that a session's client has not acknowledged: values, which share the memory of their
// arrays, and failures. All are sent again after a reconnection (E4 in executor_core.cc).
//
// Limits: kUnacknowledgedMax, kUnacknowledgedFailureBytesMax; the window bounds both for a client
// that does not lie. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>

#include "absl/status/status.h"
#include "proto/cloud.pb.h"
#include "wire/limits.h"
#include "worker/engine/engine.h"
#include "worker/session/persist_request.h"

namespace outboard::worker {

inline constexpr size_t kUnacknowledgedMax = 4 * wire::kWindowItems;
// Answer values share the memory of their arrays, which has its limit; failures name handles.
inline constexpr size_t kUnacknowledgedFailureBytesMax = size_t{16} << 20;

// One answer to an item.
struct Answer {
  DeviceArrayPtr array;  // nullptr: a failure
  uint32_t index = 0;    // Run: into outputs. Fetch: into handles
  uint64_t handle = 0;
  proto::Failed failed;
};

// Number of Saves whose answers are retained, newest last: an Ack does not cover them
// (proto/cloud.proto, Save).
inline constexpr size_t kSaveAnswersMax = 64;

// Saved, or Failed, of one Save.
struct SaveAnswer {
  uint64_t seq = 0;
  proto::ServerItem item;
};

class UnacknowledgedAnswers {
 public:
  // Errors: RESOURCE_EXHAUSTED  over a limit; the answer is not stored
  absl::Status Add(uint64_t seq, Answer answer);
  void Acknowledge(uint64_t through_seq);
  void AddSave(SaveAnswer answer);
  // Appends all of it to a snapshot.
  void AddTo(PersistRequest& request) const;

  const std::multimap<uint64_t, Answer>& by_seq() const { return answers_; }
  const std::deque<SaveAnswer>& saves() const { return saves_; }

 private:
  std::multimap<uint64_t, Answer> answers_;
  std::deque<SaveAnswer> saves_;
  size_t failed_bytes_ = 0;
};

}  // namespace outboard::worker
