// A step that is recorded to be repeated (repeat.h): what happens between its first line and its last.
//
// Invariants
//   1. Within the step nothing is sent but Puts: the one realize that it may have is remembered, and becomes part of the
//      repeated Run when the step is over. Where the step fails, what it assigned has its old value again.
//   2. What the step makes ends with it, but for what it returns. So what one step hands to the next is what it assigns.
//   3. Before it nothing is pending and no state is lazy, so that what is assigned has a buffer that it replaces: the
//      one from which the first repetition reads.
//
// Errors (thrown at the line that is wrong): FAILED_PRECONDITION for what would not be the same in each repetition.
// Threads: the one that records.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "client/tensor/realization.h"
#include "client/tensor/tensor.h"

namespace outboard::internal {

class RepeatedStep {
 public:
  // Begins. `index` is a variable's Size, or nullptr.
  RepeatedStep(int64_t count, const Size* index, const At& at);
  ~RepeatedStep();
  RepeatedStep(const RepeatedStep&) = delete;
  RepeatedStep& operator=(const RepeatedStep&) = delete;

  // This thread's, while the program's step runs.
  static RepeatedStep* Current() { return current_; }

  // Ends it and sends the Run. `returned` is what the step returned and nothing else holds; the same with an axis more.
  std::vector<Tensor> Finish(std::vector<Tensor> returned);

  // ---- what the library tells of
  void OnMade(const Value* value) { made_.insert(value); }
  void OnGone(const Value* value) { made_.erase(value); }
  void OnRead(const std::shared_ptr<Value>& value, const At& at);
  void OnAssign(const std::shared_ptr<Value>& value, const At& at);
  void OnRealize(const std::vector<std::shared_ptr<Value>>& values,
                 const std::vector<std::shared_ptr<Value>>& fetch, const At& at);
  // State that would have to be realised within the step.
  [[noreturn]] void RefuseState(const Value& value, const At& at) const;

 private:
  using WeakValues = std::vector<std::weak_ptr<Value>>;

  void ReadsAsBefore(Value& value, const At& at);
  void CheckNothingIsLeft(const std::vector<Tensor>& returned) const;
  void Alias(Tensor& tensor) const;
  void Leave();

  static inline thread_local RepeatedStep* current_ = nullptr;

  const At at_;
  Repetition repetition_;
  absl::flat_hash_set<const Value*> made_;        // in the step, and alive
  std::vector<std::shared_ptr<Value>> assigned_;  // in the step, made before it
  WeakValues values_, fetch_;                     // of the step's realize
  std::optional<At> realized_at_;
  bool finished_ = false;
};

}  // namespace outboard::internal
