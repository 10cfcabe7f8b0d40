// The commands of a supervisor to one executor (ToExecutor in proto/executor.proto). Whoever has a
// command does not wait for the executor to read it: a thread of this class sends what is queued.
//
// An honest executor has at most kBlobWantsMax answers and one to StoreBlobs outstanding, and reads
// whatever it is sent once it has done its work. One that does not is reported, once, and gets
// nothing more: with more commands queued than that, or if it takes nothing for a while although it
// says that it has no work.
//
// Threads: any, except the destructor.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "proto/executor.pb.h"
#include "worker/session/blob_inbox.h"

namespace outboard::worker {

struct CommandQueueOptions {
  int fd = -1;  // the control socket; stays open as long as the queue lives
  // Answers to all that an executor may ask for, the one to StoreBlobs, and a Begin.
  size_t commands_max = kBlobWantsMax + 2;
  // An executor without work reads at once; this is a machine that has come to a standstill.
  std::chrono::milliseconds patience = std::chrono::seconds(60);
  // True while the executor works: it reads between two frames only, and a frame may be a loop that
  // runs for hours. From the queue's thread.
  std::function<bool()> works = [] { return false; };
  // The executor is to end. From any thread, once.
  std::function<void(const absl::Status&)> on_stuck = [](const absl::Status&) {};
};

class CommandQueue {
 public:
  explicit CommandQueue(CommandQueueOptions options);
  ~CommandQueue();  // what is queued is dropped
  CommandQueue(const CommandQueue&) = delete;
  CommandQueue& operator=(const CommandQueue&) = delete;

  // Queues the command and returns at once. Takes the descriptor `passed` over (-1: none): a copy
  // would need another, and a worker may have none left. A Begin replaces one that is still queued:
  // its socket is that of an earlier connection.
  void Push(const proto::ToExecutor& command, int passed);
  // The same, but the descriptor stays the caller's, and open as long as the queue lives.
  void PushLent(const proto::ToExecutor& command, int lent);

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    std::string bytes;
    int passed = -1;
    bool is_lent = false;
    bool is_begin = false;
  };

  void Add(Entry entry);
  static void Close(const Entry& entry);
  void Main();
  // False: the other side has ended, or the queue is to.
  bool Send(const Entry& entry);
  void GiveUp(const absl::Status& why);

  const CommandQueueOptions options_;
  const int wake_;  // an eventfd: there is something to send, or the end
  std::mutex mutex_;
  std::deque<Entry> entries_;
  bool stopping_ = false;  // also after on_stuck
  std::thread thread_;
};

}  // namespace outboard::worker
