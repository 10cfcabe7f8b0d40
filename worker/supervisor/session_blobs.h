// The blobs of one session: downloads the blobs that its executor requests to this machine's disk,
// passes them as open files, and uploads those that it stores (proto/executor.proto). Both use the
// session's credentials, so a session can reach only the blobs of its account.
//
// The executor may be hostile: it has a limited number of requests in flight, and what it stores is
// read as stored_file.h says. Every request is checked with the gateway, even if the blob is
// cached here: only the gateway knows whether the account has it.
//
// Threads: calls return at once; a few threads of this class do the work and call `answer`.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/executor.pb.h"
#include "proto/fleet.pb.h"
#include "wire/blobs/transfer.h"
#include "worker/process/orphan.h"
#include "worker/supervisor/blob_cache.h"
#include "worker/supervisor/stored_file.h"

namespace outboard::worker {

struct SessionBlobsOptions {
  proto::Assign assign;
  uint32_t rank = 0;  // of the executor
  std::string fleet_secret;
  std::vector<std::shared_ptr<grpc::Channel>> channels;  // to the gateway, for bulk
  BlobCache* cache = nullptr;
  std::string owner;  // of the cached copies: the account
  // Into which the executor writes what it stores; lives longer. Null: it has none.
  const StoredFile* file = nullptr;
  uint64_t store_bytes_max = 0;  // of the blobs of one StoreBlobs
  // Sends a command, with a descriptor, which it takes over, or -1; any thread.
  std::function<void(const proto::ToExecutor&, int passed)> answer;
};

class SessionBlobs {
 public:
  explicit SessionBlobs(SessionBlobsOptions options);
  ~SessionBlobs();  // cancels transfers in flight
  SessionBlobs(const SessionBlobs&) = delete;
  SessionBlobs& operator=(const SessionBlobs&) = delete;

  // For transfers from now on.
  void UseChannels(std::vector<std::shared_ptr<grpc::Channel>> channels);
  // Errors: RESOURCE_EXHAUSTED  more requests in flight than an executor may have
  //         INVALID_ARGUMENT    a root of another length
  absl::Status Want(const proto::WantBlob& want);
  absl::Status Store(const proto::StoreBlobs& store);
  // Ends transfers in flight soon; no new one starts.
  void Cancel();

 private:
  void Post(std::function<void()> job);
  void Work();
  wire::BlobConnections Connections();
  absl::StatusOr<int> Pull(const proto::WantBlob& want);
  absl::StatusOr<uint64_t> Upload(const proto::StoreBlobs& store);
  void Tell(const absl::Status& status);  // of a Store
  wire::TransferOptions Options() const {
    return {.cancelled = &cancelled_, .retry_for = kOrphanMost};
  }

  const SessionBlobsOptions options_;
  std::atomic<size_t> wants_{0}, stores_{0};  // not answered yet
  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;
  wire::BlobConnections connections_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  std::vector<std::thread> threads_;
  std::string trouble_;  // why the last Store failed
};

}  // namespace outboard::worker
