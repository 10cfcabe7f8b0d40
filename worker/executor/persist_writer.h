// Writes the contents of a PersistRequest into a file, the arrays and the manifest behind each
// other, and returns the request to the supervisor (StoreBlobs in proto/executor.proto). Hashing
// and writing happen on a thread of their own, so that steps continue meanwhile.
//
// For a snapshot, an array that was stored before is neither hashed nor written again, since arrays
// never change. After a failed request the file is empty, to free the space of a full disk.
// Threads: one, the session's. The writing thread downloads arrays and touches no references.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "proto/executor.pb.h"
#include "worker/process/message_limits.h"
#include "worker/session/persist_request.h"

namespace outboard::worker {

class PersistWriter {
 public:
  // Owns the open file, which the supervisor empties when it answers. `pieces_max`: of a message.
  explicit PersistWriter(int file, size_t pieces_max = kStorePiecesMax);
  ~PersistWriter();

  // Starts writing; requires that `busy` is false. Take returns the result.
  void Write(std::shared_ptr<const PersistRequest> request);
  bool busy() const { return request_ != nullptr; }
  // Returns the result, once, and releases the arrays; nullopt: not done yet.
  // Errors: RESOURCE_EXHAUSTED  disk full, or another error of the file system, by its number
  struct Written {
    uint64_t id;  // of the request
    // The last message, with the manifest. Those of `before` are to be answered first.
    absl::StatusOr<proto::StoreBlobs> blobs;
    std::vector<proto::StoreBlobs> before = {};
    std::set<std::string> roots = {};  // that the manifest names
  };
  std::optional<Written> Take();
  // Waits until the arrays are no longer needed, and releases them.
  void LetGo();
  // Handles the supervisor's answer to the last message of Take's result, or to one before it that
  // failed.
  void Stored(const proto::Stored& stored);

 private:
  struct Known {
    std::weak_ptr<const DeviceArray> array;  // keeps the address from being reused
    std::string root;
  };

  void Work();
  absl::Status WriteAll(Written& written);
  // Of the bytes that `read` passes to its argument, a chunk at a time; returns the root, and adds
  // the piece, if there is none of this root yet.
  using ReadChunks = absl::FunctionRef<absl::Status(runtime::Device::Sink)>;
  absl::StatusOr<std::string> WriteBlob(uint64_t bytes, ReadChunks read, Written& written);
  void Collect();

  const int file_;
  const size_t pieces_max_;
  // Of the session's thread.
  std::map<const DeviceArray*, Known> known_;
  std::set<std::string> stored_;        // roots that the supervisor has stored
  std::set<std::string> under_way_;     // roots of what Take gave last
  std::optional<Written> written_;
  std::shared_ptr<const PersistRequest> request_;
  // Of the writing thread, while `working_`.
  const PersistRequest* job_ = nullptr;
  std::vector<std::string> roots_;  // by array; empty: not known
  std::vector<bool> skip_;          // by array: it has been stored
  std::set<std::string> written_roots_;  // of this request
  uint64_t end_bytes_ = 0;               // of its pieces
  Written result_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool working_ = false;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace outboard::worker
