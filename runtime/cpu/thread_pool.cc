#include "runtime/cpu/thread_pool.h"

#include <immintrin.h>

#include <algorithm>

#include "base/cores.h"
#include "runtime/limits.h"

namespace outboard::cpu {
namespace {

// The finest that a loop is cut, and the share of what is left that a thread takes at once: long
// runs at first, single pieces at the end, so that the threads finish together.
constexpr int kPiecesPerThread = 32;
constexpr uint64_t kTakenShare = 3;  // one third of a thread's even share
// About 10 us of looking before sleeping: longer than the gap between kernels of a step, far
// shorter than that between steps, when the processor belongs to others.
constexpr int kSpins = 400;

}  // namespace

ThreadPool::ThreadPool(int threads) {
  if (threads <= 0) threads = static_cast<int>(UsableCores().size());
  threads = std::clamp(threads, 1, limits::kThreadsMax);
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { WorkerMain(); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  signal_.fetch_add(1);
  signal_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

bool ThreadPool::RunOnePiece() {
  uint64_t state = state_.load(std::memory_order_acquire);
  while ((state & 0xFFFFFFFF) != 0) {
    const int64_t count = count_.load(std::memory_order_relaxed);
    const int64_t pieces = pieces_.load(std::memory_order_relaxed);
    const Body body = body_.load(std::memory_order_relaxed);
    void* const context = context_.load(std::memory_order_relaxed);
    const uint64_t left = state & 0xFFFFFFFF;
    const auto threads = static_cast<uint64_t>(size());
    const uint64_t taken = std::max<uint64_t>(1, left / (kTakenShare * threads));
    if (!state_.compare_exchange_weak(state, state - taken, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
      continue;
    }
    const int64_t each = count / pieces, rest = count % pieces;
    const auto begin_of = [&](int64_t piece) { return piece * each + std::min(piece, rest); };
    const int64_t piece = pieces - static_cast<int64_t>(left);
    body(context, begin_of(piece), begin_of(piece + static_cast<int64_t>(taken)));
    if (done_.fetch_add(static_cast<uint32_t>(taken), std::memory_order_acq_rel) + taken ==
        static_cast<uint64_t>(pieces))
      done_.notify_all();
    return true;
  }
  return false;
}

void ThreadPool::WorkerMain() {
  uint32_t seen = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    while (RunOnePiece()) {
    }
    int spins = 0;
    uint32_t now = signal_.load(std::memory_order_acquire);
    while (now == seen && spins++ < kSpins) {
      _mm_pause();
      now = signal_.load(std::memory_order_acquire);
    }
    if (now == seen) signal_.wait(seen, std::memory_order_acquire);
    seen = signal_.load(std::memory_order_acquire);
  }
}

void ThreadPool::ForRange(int64_t count, Body body, void* context) {
  if (count <= 0) return;
  if (workers_.empty() || count == 1) {
    body(context, 0, count);
    return;
  }
  const int64_t pieces = std::min<int64_t>(count, int64_t{size()} * kPiecesPerThread);
  count_.store(count, std::memory_order_relaxed);
  pieces_.store(pieces, std::memory_order_relaxed);
  body_.store(body, std::memory_order_relaxed);
  context_.store(context, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  const uint64_t loop = (state_.load(std::memory_order_relaxed) >> 32) + 1;
  state_.store(loop << 32 | static_cast<uint64_t>(pieces), std::memory_order_release);
  signal_.fetch_add(1, std::memory_order_acq_rel);
  signal_.notify_all();

  while (RunOnePiece()) {
  }
  for (int spins = 0;; ++spins) {
    const uint32_t done = done_.load(std::memory_order_acquire);
    if (done == static_cast<uint32_t>(pieces)) return;
    if (spins < kSpins) {
      _mm_pause();
    } else {
      done_.wait(done, std::memory_order_acquire);
    }
  }
}

}  // namespace outboard::cpu
