// The blobs of one session: downloads the blobs that its executor requests to this machine's disk,
// and uploads those that it stores (proto/executor.proto). Both use the session's credentials, so a
// session can reach only the blobs of its tenant.
//
// Every request is checked with the gateway, even if the blob is cached here: only the gateway
// knows whether the tenant has it. Threads: calls return at once; a few threads of this class do
// the work and call `answer`.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "proto/executor.pb.h"
#include "proto/fleet.pb.h"
#include "wire/blobs/transfer.h"
#include "worker/node/blob_cache.h"
#include "worker/process/orphan.h"

namespace outboard::worker {

struct SessionBlobsOptions {
  proto::Assign assign;
  std::string fleet_secret;
  std::vector<std::shared_ptr<grpc::Channel>> channels;  // to the gateway, for bulk
  BlobCache* cache = nullptr;
  std::function<void(const proto::NodeCommand&)> answer;  // any thread
};

class SessionBlobs {
 public:
  explicit SessionBlobs(SessionBlobsOptions options);
  ~SessionBlobs();  // cancels transfers in flight and removes store_folder()
  SessionBlobs(const SessionBlobs&) = delete;
  SessionBlobs& operator=(const SessionBlobs&) = delete;

  void Want(const proto::WantBlob& want);
  void Store(const proto::StoreBlobs& store);
  // The folder where the executor writes blobs to be stored, and finds downloaded ones. Each Want
  // gets a file of its own, which is not evicted to free space for other downloads.
  const std::string& store_folder() const { return store_folder_; }
  // Ends transfers in flight soon; no new one starts.
  void Cancel();

 private:
  void Post(std::function<void()> job);
  void Work();
  absl::StatusOr<std::string> Pull(const proto::WantBlob& want);
  absl::StatusOr<uint64_t> Upload(const proto::StoreBlobs& store);
  void Empty(const proto::StoreBlobs& store) const;
  void Tell(const absl::Status& status);  // of a Store
  wire::TransferOptions Options() const {
    return {.cancelled = &cancelled_, .retry_for = kOrphanMost};
  }

  const SessionBlobsOptions options_;
  wire::BlobConnections connections_;
  std::string store_folder_;
  std::atomic<uint64_t> pulled_{0};  // count of downloads; names the next file
  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  std::vector<std::thread> threads_;
  std::string trouble_;  // why the last Store failed
};

}  // namespace outboard::worker
