// The common part of blob uploads and downloads: connections, timeouts, and the threads that move
// chunks in parallel (one per connection, "stripes").
//
// Bulk bytes have connections of their own, so that no step of a session waits for them; several,
// since one TCP connection does not fill a long line. A transfer always ends: without progress for
// `stalled_after` it fails with DEADLINE_EXCEEDED, and keepalive of the channels ends dead
// connections before that. Threads: a transfer blocks its caller and may be cancelled from any
// thread.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "wire/blobs/source.h"

namespace outboard::wire {

struct BlobConnections {
  std::vector<std::shared_ptr<grpc::Channel>> channels;            // at least one
  std::vector<std::pair<std::string, std::string>> metadata = {};  // of every call: authentication
};

struct TransferOptions {
  // Called about ten times a second and at the end, in the caller's thread.
  std::function<void(const TransferProgress&)> progress = {};
  const std::atomic<bool>* cancelled = nullptr;  // true: ends with CANCELLED
  // Called as often, in the caller's thread too: an error ends the transfer and is its result.
  std::function<absl::Status()> check = {};
  std::chrono::milliseconds stalled_after{60'000};
  // Reconnects a broken connection until no progress was made for this long.
  std::chrono::milliseconds retry_for{30'000};
};

// The threads of one transfer and its progress.
class TransferStripes {
 public:
  TransferStripes(const TransferOptions& options, uint64_t total_bytes);

  // Calls work(0), work(1) ... work(count - 1) in parallel and waits for all; the first that fails
  // stops the others and is the result. CANCELLED, DEADLINE_EXCEEDED as above.
  absl::Status Run(int count, const std::function<absl::Status(int stripe)>& work);
  // As Run, but repeats while the result is UNAVAILABLE, as `retry_for` allows; calls `again`
  // before each repetition.
  absl::Status RunWithRetries(int count, const std::function<absl::Status(int stripe)>& work,
                              const std::function<void()>& again);

  // From within `work`:
  bool stopping() const { return stopping_; }
  void Moved(uint64_t bytes);
  void Worked();  // on this machine alone: no stall, and no sign of life of the other side
  void SetSaved(uint64_t bytes);
  // Resets the count of moved bytes, of which it is unknown whether they arrived.
  void ForgetMoved() { moved_ = 0; }

  // The gRPC context of a call; cancelled when the transfer stops.
  class Call {
   public:
    Call(TransferStripes* stripes, const BlobConnections& connections);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    grpc::ClientContext* context() { return &context_; }

   private:
    TransferStripes* const stripes_;
    grpc::ClientContext context_;
  };

  TransferProgress progress() const;

 private:
  void Stop();  // requires mutex_
  absl::Status Watch(std::unique_lock<std::mutex>& lock, int count);
  absl::Status Check() const;  // an error: the caller ended the transfer

  const TransferOptions& options_;
  const uint64_t total_bytes_;
  std::atomic<uint64_t> moved_{0}, saved_{0}, ticks_{0}, heard_{0};
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  int ended_ = 0;
  absl::Status first_;
  std::set<grpc::ClientContext*> calls_;
};

}  // namespace outboard::wire
