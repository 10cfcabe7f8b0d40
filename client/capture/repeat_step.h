// Records a step that is to be repeated (repeat.h): lives from the step's first line to its last.
//
// Invariants
//   1. Within the step nothing is sent but Puts: its one realize is recorded and becomes part of
//      the repeated Run after the step. If the step fails, the tensors that it assigned get their
//      old values back.
//   2. Tensors made in the step end with it, except the returned ones. So repetitions pass on only
//      assigned values.
//   3. Before the step nothing is pending and no state is lazy, so that each assigned tensor has a
//      buffer that it replaces: the one from which the first repetition reads.
//
// Errors (thrown at the offending line): FAILED_PRECONDITION for operations that would not be the
// same in each repetition. Threads: the recording thread.
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
  // Starts to record. `index` is a variable's SymInt, or nullptr.
  RepeatStep(int64_t count, const SymInt* index, const At& at);
  ~RepeatStep() override;

  // Ends the recording and sends the Run. Requires that nothing else holds the tensors in
  // `returned`. Returns them with a leading axis added.
  std::vector<Tensor> Finish(std::vector<Tensor> returned);

  // ---- events of the library
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
