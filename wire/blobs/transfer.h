// What uploads and downloads of blobs share: the connections, what may be waited for, and the
// threads that move chunks side by side (one a connection, "stripes").
//
// Bulk bytes have connections of their own, so that no step of a session waits behind them;
// several, since one TCP connection does not fill a long line. A transfer ends by itself: where
// nothing moves for `stalled_after` it is DEADLINE_EXCEEDED, and keepalive of the channels ends
// dead connections before that. Threads: a transfer blocks its caller and may be cancelled from any
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
  std::vector<std::pair<std::string, std::string>> metadata = {};  // of every call: whose blobs
};

struct TransferOptions {
  // Some ten times a second and at the end, in the caller's thread.
  std::function<void(const TransferProgress&)> progress = {};
  const std::atomic<bool>* cancelled = nullptr;  // true: ends with CANCELLED
  // As often, in the caller's thread too: not OK ends the transfer with it.
  std::function<absl::Status()> check = {};
  std::chrono::milliseconds stalled_after{60'000};
  // A connection that breaks is made again for so long without any progress.
  std::chrono::milliseconds retry_for{30'000};
};

// The threads of one transfer, and its one word about how far it is.
class TransferStripes {
 public:
  TransferStripes(const TransferOptions& options, uint64_t total_bytes);

  // Calls work(0), work(1) ... work(count - 1) side by side and waits for all; the first that fails
  // stops the others and is the result. CANCELLED, DEADLINE_EXCEEDED as above.
  absl::Status Run(int count, const std::function<absl::Status(int stripe)>& work);
  // As Run, again and again while it is UNAVAILABLE, as `retry_for` allows; `again` comes before
  // each time but the first.
  absl::Status RunWithRetries(int count, const std::function<absl::Status(int stripe)>& work,
                              const std::function<void()>& again);

  // From within `work`:
  bool stopping() const { return stopping_; }
  void Moved(uint64_t bytes);
  void SetSaved(uint64_t bytes);
  // Of what was moved nobody knows whether it has arrived.
  void ForgetMoved() { moved_ = 0; }

  // A call's context, cancelled when the transfer stops.
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
  void Stop();  // under mutex_
  absl::Status Watch(std::unique_lock<std::mutex>& lock, int count);
  absl::Status Check() const;  // whether the caller still wants it

  const TransferOptions& options_;
  const uint64_t total_bytes_;
  std::atomic<uint64_t> moved_{0}, saved_{0}, ticks_{0};
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  int ended_ = 0;
  absl::Status first_;
  std::set<grpc::ClientContext*> calls_;
};

}  // namespace outboard::wire
