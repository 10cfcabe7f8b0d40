// What happens between the first and the last line of a step of the program that is recorded, to be sent again without
// being run again: by repeat() (repeated_step.h) or as a captured step (captured_step.h).
//
// The library tells the one that is being recorded, if there is one, of what it does; that decides what it means.
// Errors: thrown by those that are told, at the line that is wrong. Threads: the one that records.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "client/tensor/error.h"
#include "client/tensor/recording.h"

namespace outboard::internal {

// A Run that Realization has sent.
struct SentRun {
  const transport::RunRequest& request;
  const EncodedRun& encoded;
  const std::vector<std::shared_ptr<Storage>>& inputs;
  const std::vector<std::shared_ptr<Storage>>& results;
  const std::vector<const UOp*>& roots;  // of `results`, in the current recording
};

class RecordedStep {
 public:
  RecordedStep() = default;
  RecordedStep(const RecordedStep&) = delete;
  RecordedStep& operator=(const RecordedStep&) = delete;
  virtual ~RecordedStep() { Leave(); }

  // This thread's, while the program's step runs.
  static RecordedStep* Current() { return current_; }

  void OnMade(const Value* value) { made_.insert(value); }
  void OnGone(const Value* value) { made_.erase(value); }
  virtual void OnRead(const std::shared_ptr<Value>& value, const At& at) = 0;
  virtual void OnAssign(const std::shared_ptr<Value>& value, const At& at) = 0;
  // Before a realize. True: it is taken care of.
  virtual bool OnRealize(const std::vector<std::shared_ptr<Value>>& values,
                         const std::vector<std::shared_ptr<Value>>& fetch, const At& at) = 0;
  // State that has to be realised before it is read.
  virtual void OnState(const Value& value, const At& at) const = 0;
  virtual void OnRun(const SentRun& run, const At& at) = 0;
  // `what` cannot be done within the step.
  [[noreturn]] virtual void Refuse(const At& at, const std::string& what) const = 0;

 protected:
  void Enter() { current_ = this; }
  void Leave() {
    if (current_ == this) current_ = nullptr;
  }
  bool IsMade(const Value& value) const { return made_.contains(&value); }

  absl::flat_hash_set<const Value*> made_;  // in the step, and alive

 private:
  static inline thread_local RecordedStep* current_ = nullptr;
};

}  // namespace outboard::internal
