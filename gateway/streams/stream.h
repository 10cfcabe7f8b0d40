// The server's end of a gRPC stream: a queue for messages, since gRPC allows one pending write; an
// End that waits for the queue (SendingStream); and, for streams with two directions, reading that
// can be paused (Stream). Deletes itself after the last callback.
//
// Invariants
//   ST1 At most one StartWrite is pending: writing_, and only the thread that set it calls
//       StartWrite.
//   ST2 Finish is called once, when no write is pending and no hold is taken; so OnDone cannot
//       delete the stream while a thread has a hold (or has set writing_).
//   ST3 No message is queued after End.
#pragma once

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "base/check.h"
#include "gateway/base/limits.h"
#include "gateway/base/thrown.h"
#include "gateway/streams/stall_watch.h"
#include "wire/frame_queue.h"
#include "wire/status.h"

namespace outboard::gateway {

// A queue for messages that cannot be merged into one write.
template <typename Message>
class PlainQueue {
 public:
  void Push(Message message) {
    const size_t bytes = message.ByteSizeLong();
    messages_.push_back(std::move(message));
    bytes_ += bytes;  // behind all that can throw
  }
  Message Pop() {
    Message message = std::move(messages_.front());
    messages_.pop_front();
    bytes_ -= message.ByteSizeLong();
    return message;
  }
  void Clear() {
    messages_.clear();
    bytes_ = 0;
  }
  bool empty() const { return messages_.empty(); }
  size_t bytes() const { return bytes_; }

 private:
  std::deque<Message> messages_;
  size_t bytes_ = 0;
};

// `Reactor` is the gRPC reactor of a call that sends `Out`, as `Written`: itself, or encoded.
template <typename Reactor, typename Out, typename Queue = wire::FrameQueue<Out>,
          typename Written = Out>
class SendingStream : public Reactor {
 public:
  // Queues or writes `message`. May be called by any thread while the stream is alive: before
  // OnGone, under the lock that OnGone takes.
  void Send(Out message) {
    {
      std::lock_guard lock(mutex_);
      if (!Enqueue(std::move(message))) return;
    }
    Write();
  }

  // Sends `message`, then ends the stream with `status`, as one: no OnCancel comes between the two.
  void SendLast(Out message, absl::Status status) {
    bool write = false;
    {
      std::lock_guard lock(mutex_);
      if (ending_) return;
      write = Enqueue(std::move(message));
      ending_ = true;
      status_ = std::move(status);
    }
    if (write) {
      Write();
    } else {
      FinishIfIdle();
    }
  }

  // Ends the stream after the queued messages. The first status counts.
  void End(absl::Status status) {
    {
      std::lock_guard lock(mutex_);
      if (ending_) return;
      ending_ = true;
      status_ = std::move(status);
    }
    FinishIfIdle();
  }

  // Returns true if more than kQueuedBytesMax are queued: the caller stops reading, and OnWritable
  // follows.
  bool AskWritable() {
    std::lock_guard lock(mutex_);
    if (broken_ || queue_.bytes() <= kQueuedBytesMax) return false;
    writable_asked_ = true;
    return true;
  }
  size_t queued_bytes() const {
    std::lock_guard lock(mutex_);
    return queue_.bytes();
  }

  // Keeps the stream alive until Unhold. Returns false if it has finished already.
  bool Hold() {
    std::lock_guard lock(mutex_);
    if (finished_) return false;
    ++holds_;
    return true;
  }
  void Unhold() {
    {
      std::lock_guard lock(mutex_);
      --holds_;
    }
    FinishIfIdle();
  }

 protected:
  // Before the first Send: a write that its reader does not take is watched.
  void WatchWrites(std::unique_ptr<StallWatch::Watched> writes) { writes_ = std::move(writes); }
  virtual void OnWritable() {}
  virtual void OnQueued(size_t bytes) {}                // under a lock: count, no more
  virtual void OnFinish(const absl::Status& status) {}  // once, before the call ends with it
  virtual void OnGone() = 0;  // the stream is deleted next: drop all pointers to it

 private:
  // Under the lock. True: nothing is being written, so the caller calls Write after it.
  bool Enqueue(Out message) {
    if (ending_ || broken_) return false;
    const size_t before = queue_.bytes();
    queue_.Push(std::move(message));
    OnQueued(queue_.bytes() - before);
    if (writing_) return false;
    out_ = queue_.Pop();
    writing_ = true;
    return true;
  }

  // Where there is no memory to write with, the stream ends: its peer would lack a message.
  void Write() {
    const absl::Status status = ErrorIfThrown("writing to a stream", [this] {
      StartWriteOfOut();
      return absl::OkStatus();
    });
    if (status.ok()) return;
    {
      std::lock_guard lock(mutex_);
      broken_ = true;
      writing_ = false;
      queue_.Clear();
      if (!std::exchange(ending_, true)) status_ = status;
    }
    FinishIfIdle();
  }

  void StartWriteOfOut() {
    if (writes_ != nullptr) writes_->Waits();
    if constexpr (std::is_same_v<Written, Out>) {
      this->StartWrite(&out_);
    } else {
      bool own = false;
      written_.Clear();
      const bool good = grpc::SerializationTraits<Out>::Serialize(out_, &written_, &own).ok();
      OB_CHECK(good);
      out_.Clear();
      this->StartWrite(&written_);
    }
  }

  void OnWriteDone(bool ok) final {
    if (writes_ != nullptr) writes_->Goes();
    bool more = false, writable = false;
    {
      std::lock_guard lock(mutex_);
      if (!ok) {
        broken_ = true;
        queue_.Clear();
      }
      more = !queue_.empty();
      if (more) {
        out_ = queue_.Pop();
      } else {
        writing_ = false;
      }
      writable = queue_.bytes() <= kQueuedBytesMax / 2 && std::exchange(writable_asked_, false);
      if (writable) ++holds_;
    }
    if (more) Write();
    if (writable) {
      OnWritable();
      Unhold();
    } else if (!more) {
      FinishIfIdle();
    }
  }

  void OnCancel() final {
    {
      std::lock_guard lock(mutex_);
      broken_ = true;
      queue_.Clear();
    }
    End(absl::CancelledError("the stream was cancelled"));
  }

  void OnDone() final {
    OnGone();
    delete this;
  }

  void FinishIfIdle() {
    absl::Status status;
    {
      std::lock_guard lock(mutex_);
      if (!ending_ || finished_ || writing_ || holds_ > 0) return;
      finished_ = true;
      status = status_;
    }
    OnFinish(status);
    // Once: also where there is no memory for its text.
    grpc::Status told(grpc::StatusCode::RESOURCE_EXHAUSTED, "");
    ErrorIfThrown("ending a stream", [&] {
      told = wire::ToGrpc(status);
      return absl::OkStatus();
    }).IgnoreError();
    this->Finish(told);
  }

  Out out_;
  Written written_;                              // out_, where they are not the same
  std::unique_ptr<StallWatch::Watched> writes_;  // or null: not watched
  mutable std::mutex mutex_;
  Queue queue_;
  absl::Status status_;
  int holds_ = 0;
  bool writing_ = false, ending_ = false, finished_ = false, broken_ = false,
       writable_asked_ = false;
};

// `In` as it is read: a message, or the bytes of one.
template <typename In, typename Out, typename Queue = wire::FrameQueue<Out>, typename Written = Out>
class Stream : public SendingStream<grpc::ServerBidiReactor<In, Written>, Out, Queue, Written> {
 public:
  // Begins to read, where Begin was not called; continues after OnMessage returned false.
  void ResumeReading() {
    if (!this->Hold()) return;
    this->StartRead(&in_);
    this->Unhold();
  }

 protected:
  void Begin() { this->StartRead(&in_); }

  // False: reading stops until ResumeReading.
  virtual bool OnMessage(In message) = 0;
  virtual void OnReadEnd() = 0;  // the peer half-closed, or the stream broke

 private:
  void OnReadDone(bool ok) final {
    if (!ok) {
      OnReadEnd();
      return;
    }
    if (!OnMessage(std::move(in_))) return;
    in_.Clear();
    this->StartRead(&in_);
  }

  In in_;
};

}  // namespace outboard::gateway
