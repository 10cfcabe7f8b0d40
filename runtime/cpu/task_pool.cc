// Invariants
//   T1  body_, tasks_ and part_ are written only while no helper is inside Work: before generation_ grows, after
//       busy_ is 0.
//   T2  next_ only grows during a Run; a part belongs to whoever moved next_ past it.
//   T3  Run returns only when busy_ is 0: no helper reads body_ after that.
//
//   idle --Run: generation_++--> running --next_ >= tasks_ and busy_ == 0--> idle
#include "runtime/cpu/task_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace outboard::cpu {
namespace {

// Kernels of a step follow each other within microseconds; a sleep and a wake cost ten times that.
constexpr int kSpins = 2000;
constexpr int kPartsPerThread = 4;

}  // namespace

struct TaskPool::Impl {
  std::vector<std::thread> helpers;
  std::mutex mutex;
  std::condition_variable wake;
  std::atomic<uint64_t> generation{0};
  std::atomic<bool> stop{false};
  std::atomic<int> sleeping{0};

  const std::function<void(int64_t, int64_t)>* body = nullptr;
  int64_t tasks = 0;
  int64_t part = 1;
  std::atomic<int64_t> next{0};
  std::atomic<int> busy{0};

  void Work() {
    while (true) {
      const int64_t begin = next.fetch_add(part);
      if (begin >= tasks) return;
      (*body)(begin, std::min(begin + part, tasks));
    }
  }

  void Help() {
    uint64_t seen = 0;
    while (true) {
      for (int spin = 0; spin < kSpins && generation.load() == seen && !stop.load(); ++spin)
        __builtin_ia32_pause();
      if (generation.load() == seen && !stop.load()) {
        std::unique_lock lock(mutex);
        ++sleeping;
        wake.wait(lock, [&] { return generation.load() != seen || stop.load(); });
        --sleeping;
      }
      if (stop.load()) return;
      seen = generation.load();
      Work();
      --busy;
    }
  }
};

TaskPool::TaskPool(int threads) : impl_(std::make_unique<Impl>()) {
  for (int i = 1; i < threads; ++i) impl_->helpers.emplace_back([this] { impl_->Help(); });
}

TaskPool::~TaskPool() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  impl_->wake.notify_all();
  for (std::thread& helper : impl_->helpers) helper.join();
}

int TaskPool::threads() const { return static_cast<int>(impl_->helpers.size()) + 1; }

void TaskPool::Run(int64_t tasks, const std::function<void(int64_t, int64_t)>& body) {
  if (tasks <= 0) return;
  if (impl_->helpers.empty() || tasks == 1) {
    body(0, tasks);
    return;
  }
  impl_->body = &body;
  impl_->tasks = tasks;
  impl_->part = std::max<int64_t>(1, tasks / (threads() * kPartsPerThread));
  impl_->next = 0;
  impl_->busy = static_cast<int>(impl_->helpers.size());
  ++impl_->generation;
  if (impl_->sleeping.load() > 0) {
    // The lock orders this with a helper between its last look and its sleep.
    { std::lock_guard lock(impl_->mutex); }
    impl_->wake.notify_all();
  }
  impl_->Work();
  while (impl_->busy.load() != 0) __builtin_ia32_pause();
}

}  // namespace outboard::cpu
