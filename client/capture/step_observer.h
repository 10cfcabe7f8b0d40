// The interface by which the library reports its operations to a step that is being recorded: to
// repeat() (repeat_step.h) or to a captured step (jit_step.h), which will send it again without
// running it.
//
// The observer decides how to handle each operation. Errors: thrown by the observer at the
// offending line. Threads: the recording thread.
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
  const session::RunRequest& request;
  const EncodedRun& encoded;
  const std::vector<std::shared_ptr<CloudBuffer>>& inputs;
  const std::vector<std::shared_ptr<CloudBuffer>>& results;
  const std::vector<const UOp*>& roots;  // of `results`, in the thread's lazy graph
};

// The live TensorStates that a step has made. They share it with the step, because Python's
// collector may destroy one on any thread and after the step. Threads: any.
class MadeValues {
 public:
  // That of the step which this thread records, or nullptr.
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
    for (TensorState* const value : values_)  // some may be blocked in Remove
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

  // This thread's observer while a recorded step runs, else nullptr.
  static StepObserver* Current() { return current_; }

  virtual void OnRead(const std::shared_ptr<TensorState>& value, const At& at) = 0;
  virtual void OnAssign(const std::shared_ptr<TensorState>& value, const At& at) = 0;
  // Called before a realize. Returns true if the observer handles it.
  virtual bool OnRealize(const std::vector<std::shared_ptr<TensorState>>& values,
                         const std::vector<std::shared_ptr<TensorState>>& fetch, const At& at) = 0;
  // Called for state that has to be realised before it is read.
  virtual void OnState(const TensorState& value, const At& at) const = 0;
  virtual void OnRun(const SentRun& run, const At& at) = 0;
  // Whether the observer will send this input of a Run again, so that it must not be donated.
  virtual bool Retains(const CloudBuffer& input) const { return false; }
  // Throws: `what` is not possible within the step.
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
