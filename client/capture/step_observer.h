// What happens between the first and the last line of a step of the program that is recorded, to be
// sent again without being run again: by repeat() (repeated_step.h) or as a captured step
// (captured_step.h).
//
// The library tells the one that is being recorded, if there is one, of what it does; that decides
// what it means. Errors: thrown by those that are told, at the line that is wrong. Threads: the one
// that records.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "client/lazy/lazy_graph.h"
#include "client/tensor/error.h"

namespace outboard::internal {

// A Run that Realization has sent.
struct SentRun {
  const transport::RunRequest& request;
  const EncodedRun& encoded;
  const std::vector<std::shared_ptr<CloudBuffer>>& inputs;
  const std::vector<std::shared_ptr<CloudBuffer>>& results;
  const std::vector<const UOp*>& roots;  // of `results`, in the current recording
};

// What a step has made that is alive. Its Values share it with the step, for Python's collector may
// end one on any thread and after the step. Threads: any.
class MadeValues {
 public:
  // Of the step that this thread records, or nullptr.
  static std::shared_ptr<MadeValues> OfThread();

  void Add(TensorState* value) {
    const std::lock_guard lock(mutex_);
    values_.insert(value);
  }
  void Remove(TensorState* value) {
    const std::lock_guard lock(mutex_);
    values_.erase(value);
  }
  std::vector<std::shared_ptr<TensorState>> Living() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<TensorState>> living;
    for (TensorState* const value : values_)  // some wait in Remove
      if (std::shared_ptr<TensorState> owned = value->weak_from_this().lock(); owned != nullptr)
        living.push_back(std::move(owned));
    return living;
  }

 private:
  mutable std::mutex mutex_;
  absl::flat_hash_set<TensorState*> values_;
};

class StepObserver {
 public:
  StepObserver() = default;
  StepObserver(const StepObserver&) = delete;
  StepObserver& operator=(const StepObserver&) = delete;
  virtual ~StepObserver() { Leave(); }

  // This thread's, while the program's step runs.
  static StepObserver* Current() { return current_; }

  virtual void OnRead(const std::shared_ptr<TensorState>& value, const At& at) = 0;
  virtual void OnAssign(const std::shared_ptr<TensorState>& value, const At& at) = 0;
  // Before a realize. True: it is taken care of.
  virtual bool OnRealize(const std::vector<std::shared_ptr<TensorState>>& values,
                         const std::vector<std::shared_ptr<TensorState>>& fetch, const At& at) = 0;
  // State that has to be realised before it is read.
  virtual void OnState(const TensorState& value, const At& at) const = 0;
  virtual void OnRun(const SentRun& run, const At& at) = 0;
  // `what` cannot be done within the step.
  [[noreturn]] virtual void Refuse(const At& at, const std::string& what) const = 0;

 protected:
  void Enter() { current_ = this; }
  void Leave() {
    if (current_ == this) current_ = nullptr;
  }
  bool IsMade(const TensorState& value) const { return value.made_in == made_; }

  const std::shared_ptr<MadeValues> made_ = std::make_shared<MadeValues>();  // in the step

 private:
  friend class MadeValues;
  static inline thread_local StepObserver* current_ = nullptr;
};

inline std::shared_ptr<MadeValues> MadeValues::OfThread() {
  const StepObserver* const step = StepObserver::current_;
  return step == nullptr ? nullptr : step->made_;
}

}  // namespace outboard::internal
