// Threads that run a kernel's tasks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace outboard::cpu {

// A fixed number of threads, the caller among them. One Run at a time, from one thread.
class TaskPool {
 public:
  explicit TaskPool(int threads);  // at least 1
  ~TaskPool();
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  int threads() const;

  // Calls body(begin, end) for contiguous parts of [0, tasks), which together are all of it; returns when all are done.
  // Parts are handed out as threads get free, so uneven tasks and busy cores do not hold the others up.
  void Run(int64_t tasks, const std::function<void(int64_t begin, int64_t end)>& body);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace outboard::cpu
