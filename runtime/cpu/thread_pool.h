// Threads that run the pieces of one loop together: the caller and size() - 1 others.
//
// A step is dozens of kernels of tens of microseconds each, so waking threads must be cheap: idle
// threads spin for some microseconds, waiting for the next loop, before they sleep. A loop is cut
// into contiguous pieces, which threads take as they become free, many at once at first and single
// ones at the end, because threads on a shared machine do not progress equally fast. Results must
// not depend on the cuts.
//
// Threads: ForRange is called by one thread at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace outboard::cpu {

class ThreadPool {
 public:
  // `threads` is clamped to [1, limits::kThreadsMax]; 0: one for each core that
  // this process may use.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  using Body = void (*)(void* context, int64_t begin, int64_t end);
  // Calls body(context, begin, end) for disjoint ranges that cover [0, count); returns when all
  // calls have returned. Their writes are visible to the caller.
  void ForRange(int64_t count, Body body, void* context);

 private:
  void WorkerMain();
  bool RunOnePiece();

  // (loop << 32 | pieces not yet taken). A thread takes a piece by compare-and-swap of the whole
  // word, which succeeds only while the loop whose fields it has read is still the current one: the
  // caller cannot start another loop before every piece is taken and done.
  std::atomic<uint64_t> state_{0};
  std::atomic<int64_t> count_{0};
  std::atomic<int64_t> pieces_{0};
  std::atomic<Body> body_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<uint32_t> done_{0};  // pieces of this loop
  std::atomic<uint32_t> signal_{
      0};  // changes at a new loop and at shutdown; sleeping threads wait on it
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace outboard::cpu
