// A step that is recorded to be repeated (repeat.h): what happens between its first line and its
// last.
//
// Invariants
//   1. Within the step nothing is sent but Puts: the one realize that it may have is remembered,
//      and becomes part of the repeated Run when the step is over. Where the step fails, what it
//      assigned has its old value again.
//   2. What the step makes ends with it, but for what it returns. So what one step hands to the
//      next is what it assigns.
//   3. Before it nothing is pending and no state is lazy, so that what is assigned has a buffer
//      that it replaces: the one from which the first repetition reads.
//
// Errors (thrown at the line that is wrong): FAILED_PRECONDITION for what would not be the same in
// each repetition. Threads: the one that records.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "client/capture/step_observer.h"
#include "client/lazy/realization.h"
#include "client/tensor/tensor.h"

namespace outboard::internal {

class RepeatStep : public StepObserver {
 public:
  // Begins. `index` is a variable's SymInt, or nullptr.
  RepeatStep(int64_t count, const SymInt* index, const At& at);
  ~RepeatStep() override;

  // Ends it and sends the Run. `returned` is what the step returned and nothing else holds; the
  // same with an axis more.
  std::vector<Tensor> Finish(std::vector<Tensor> returned);

  // ---- what the library tells of
  void OnRead(const std::shared_ptr<TensorState>& value, const At& at) override;
  void OnAssign(const std::shared_ptr<TensorState>& value, const At& at) override;
  bool OnRealize(const std::vector<std::shared_ptr<TensorState>>& values,
                 const std::vector<std::shared_ptr<TensorState>>& fetch, const At& at) override;
  void OnState(const TensorState& value, const At& at) const override;
  void OnRun(const SentRun& run, const At& at) override {}
  [[noreturn]] void Refuse(const At& at, const std::string& what) const override;

 private:
  using WeakValues = std::vector<std::weak_ptr<TensorState>>;

  void ReadsAsBefore(TensorState& value, const At& at);
  void CheckNothingIsLeft(const std::vector<Tensor>& returned) const;
  void Alias(Tensor& tensor) const;

  const At at_;
  Repetition repetition_;
  std::vector<std::shared_ptr<TensorState>> assigned_;  // in the step, made before it
  WeakValues values_, fetch_;                           // of the step's realize
  std::optional<At> realized_at_;
  bool finished_ = false;
};

}  // namespace outboard::internal
