// Writes what a PersistRequest holds into a folder, each array and the manifest as a file named by
// the hex of its root, and says what the supervisor is to do with them (StoreBlobs in
// proto/executor.proto). Hashing and writing have a thread of their own, so that steps go on
// meanwhile.
//
// For a snapshot, an array that was stored before is neither hashed nor written again: Runs make
// new arrays and never change one. A file is whole once it has its name.
// Of a request that fails no file stays: a disk that is full has its room back.
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
#include "worker/session/persist_request.h"

namespace outboard::worker {

class PersistWriter {
 public:
  // `folder` exists, and is the supervisor's to empty when it has answered.
  explicit PersistWriter(std::string folder);
  ~PersistWriter();

  // When `busy` is false; Take gives the result.
  void Write(std::shared_ptr<const PersistRequest> request);
  bool busy() const { return request_ != nullptr; }
  // What was written, once; nullopt: nothing yet. The arrays are held no longer.
  // Errors: RESOURCE_EXHAUSTED  no room, or another error of the file system, by its number
  struct Written {
    uint64_t id;  // of the request
    absl::StatusOr<proto::StoreBlobs> blobs;
  };
  std::optional<Written> Take();
  // Waits until the arrays need not be held, and holds them no longer.
  void LetGo();
  // The supervisor's answer to what Take gave last.
  void Stored(const proto::Stored& stored);

 private:
  struct Known {
    std::weak_ptr<const DeviceArray> array;  // keeps its address from being another's
    std::string root;
  };

  void Work();
  absl::StatusOr<proto::StoreBlobs> WriteAll();
  void Remove();
  // Of the bytes that `read` passes to its argument, a chunk at a time; returns the root.
  using ReadChunks = absl::FunctionRef<absl::Status(runtime::Device::Sink)>;
  absl::StatusOr<std::string> WriteBlob(uint64_t bytes, ReadChunks read);
  std::string PathOf(const std::string& root) const;
  void Collect();

  const std::string folder_;
  // Of the session's thread.
  std::map<const DeviceArray*, Known> known_;
  std::set<std::string> stored_;        // roots that the supervisor has stored
  std::vector<std::string> under_way_;  // roots of what Take gave last
  std::optional<Written> written_;
  std::shared_ptr<const PersistRequest> request_;
  // Of the writing thread, while `working_`.
  const PersistRequest* job_ = nullptr;
  std::vector<std::string> roots_;  // by array; empty: not known
  std::vector<bool> skip_;          // by array: it has been stored
  std::vector<std::string> made_;   // the files of this request
  absl::StatusOr<proto::StoreBlobs> result_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool working_ = false;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace outboard::worker
