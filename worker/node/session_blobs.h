// The blobs of one session: gets those that its executor wants onto this machine's disk, and
// uploads those that it stores (proto/executor.proto), both in the session's name, so that a
// tenant's session sees its tenant's blobs only.
//
// What is wanted is asked for at the gateway each time, also where it is here already: whether the
// tenant has it is the gateway's to say. Threads: calls return at once; the work is done on a few
// threads of its own, and answered from them.
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
  std::string fleet_token;
  std::vector<std::shared_ptr<grpc::Channel>> channels;  // to the gateway, for bulk
  BlobCache* cache = nullptr;
  std::function<void(const proto::NodeCommand&)> answer;  // any thread
};

class SessionBlobs {
 public:
  explicit SessionBlobs(SessionBlobsOptions options);
  ~SessionBlobs();  // cancels what is under way and removes store_folder()
  SessionBlobs(const SessionBlobs&) = delete;
  SessionBlobs& operator=(const SessionBlobs&) = delete;

  void Want(const proto::WantBlob& want);
  void Store(const proto::StoreBlobs& store);
  // Where the executor writes what is to be stored, and finds what was pulled: each want a file of
  // its own, which no other pull's need of room takes away.
  const std::string& store_folder() const { return store_folder_; }
  // Whatever is under way ends soon; no more is begun.
  void Cancel();

 private:
  void Post(std::function<void()> job);
  void Work();
  absl::StatusOr<std::string> Pull(const proto::WantBlob& want);
  absl::StatusOr<uint64_t> Upload(const proto::StoreBlobs& store);
  void Empty(const proto::StoreBlobs& store) const;
  wire::TransferOptions Options() const {
    return {.cancelled = &cancelled_, .retry_for = kOrphanMost};
  }

  const SessionBlobsOptions options_;
  wire::BlobConnections connections_;
  std::string store_folder_;
  std::atomic<uint64_t> pulled_{0};  // names the next
  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  std::vector<std::thread> threads_;
};

}  // namespace outboard::worker
