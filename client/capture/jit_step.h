// A step of the program that is recorded once and then sent again without running it: the
// implementation of Jit (jit.h).
//
// Invariants
//   1. While it is recorded the step runs as usual, and each Run that it sends is recorded together
//      with the origin of each input: an argument, a result of an earlier Run of the step, a tensor
//      that existed before the step, or bytes that the step itself made.
//   2. A tensor that existed before is read at its current value when the step is sent again: the
//      step refers to its TensorState, not its buffer. If it is lazy when the step first reads it,
//      it is realised then, outside of the step.
//   3. A result belongs to the TensorStates that had it when the recording ended; each send gives
//      them the new buffer. The tensors that the step returns are new each time.
//   4. While it is recorded, an argument that was computed with sizes of variables has these sizes
//      (CloudBuffer::is_symbolic), as no other realised tensor; so no graph holds their values.
//   5. An input whose last owner is the step is donated to the last Run that reads it, as in any
//      realize.
//
// Errors (thrown): as jit.h. Threads: the recording thread first, then one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "client/capture/step_observer.h"
#include "client/tensor/tensor.h"

namespace outboard::internal {

class JitStep : public StepObserver {
 public:
  // Starts to record a step with these arguments.
  JitStep(const std::vector<Tensor>& arguments, const std::vector<SymInt>& sizes, const At& at);
  ~JitStep() override { ShowNumbers(); }

  // Ends the recording and realises `returned`. Returns the same tensors, except copies of those
  // that the step may retain.
  std::vector<Tensor> Finish(const std::vector<Tensor>& returned);

  // Sends the recorded Runs again.
  std::vector<Tensor> Send(const std::vector<Tensor>& arguments, const std::vector<SymInt>& sizes,
                           const At& at);

  // ---- events of the library
  void OnRead(const std::shared_ptr<TensorState>& value, const At& at) override;
  void OnAssign(const std::shared_ptr<TensorState>& value, const At& at) override;
  bool OnRealize(const std::vector<std::shared_ptr<TensorState>>& values,
                 const std::vector<std::shared_ptr<TensorState>>& fetch, const At& at) override;
  void OnState(const TensorState& value, const At& at) const override {}
  void OnRun(const SentRun& run, const At& at) override;
  bool Retains(const CloudBuffer& input) const override;
  [[noreturn]] void Refuse(const At& at, const std::string& what) const override;

 private:
  // The origin of a buffer that a Run reads or the step returns.
  struct Source {
    enum class Kind { kArgument, kState, kResult, kConstant } kind;
    size_t index;  // in the call's arguments, states_, results_ or constants_
  };
  struct Argument {
    DType dtype;
    std::vector<int64_t> dims;
    std::vector<SymInt> sizes;  // where some are of variables; as recorded
  };
  // A tensor that existed before the step, and others with the same buffer.
  struct State {
    const CloudBuffer* recorded;
    std::vector<std::weak_ptr<TensorState>> values;
    DType dtype;
    std::vector<int64_t> dims;
    bool is_random_key = false, is_random_counter = false;  // those of the sending thread
  };
  struct Result {
    std::weak_ptr<CloudBuffer> recorded;
    DType dtype;
    std::vector<int64_t> dims;                       // if all are numbers
    std::vector<SymInt> sizes;                       // otherwise; as recorded
    std::vector<std::weak_ptr<TensorState>> owners;  // existed before, or are still held
    std::vector<size_t> arguments;                   // arguments that it was assigned to
    bool is_random_counter = false;
    std::optional<size_t> replaces;  // the input of its Run that it replaces
  };
  // A tensor that existed before, to which the step assigned what it neither computed nor made.
  struct Move {
    std::weak_ptr<TensorState> to;
    std::optional<size_t> argument;  // that it is, in place of `to`
    Source from;
  };
  struct Run {
    session::RunRequest request;  // handles and donations are those of the last send
    std::vector<Source> inputs;
    std::vector<bool> is_last;  // no later Run reads this input, and it is not returned
    size_t first_result;
    std::vector<RangedVariable> variables;  // of the VAR slots
    std::shared_ptr<const Lines> lines;
  };
  // The buffers of one Send; each is dropped after the last Run that uses it.
  struct Sending {
    std::vector<std::shared_ptr<CloudBuffer>> arguments, states, results;
    std::vector<BoundVariable> bound;
    At at;
  };

  void Remember(const std::shared_ptr<CloudBuffer>& storage, Source source);
  void AddReader(const std::shared_ptr<TensorState>& value);
  Source SourceOf(const std::shared_ptr<CloudBuffer>& storage);
  void FindStates();
  std::optional<size_t> ArgumentOf(const TensorState* value) const;  // of the recorded call
  void FindOwners();
  void FindMoves();
  void FindLastReads();

  void MarkStale();
  void CheckArguments(const std::vector<Tensor>& arguments, const At& at) const;
  std::vector<BoundVariable> BoundIn(const std::vector<Tensor>& arguments,
                                     const std::vector<SymInt>& sizes, const At& at) const;
  void CheckRanges(const Sending& sending) const;
  void ShowNumbers();
  void RealizeInputs(const std::vector<Tensor>& arguments, const At& at) const;
  std::shared_ptr<CloudBuffer> NowOf(const State& state, const At& at) const;
  std::shared_ptr<CloudBuffer>& BufferOf(const Source& source, Sending& sending);
  void SendRun(Run& run, const std::vector<Tensor>& arguments, Sending& sending);
  std::shared_ptr<CloudBuffer> MakeResult(const Result& result,
                                          const std::vector<BoundVariable>& bound) const;
  // Appends the names that go over to it as output `index`.
  void Own(const Result& result, const std::shared_ptr<CloudBuffer>& storage,
           const std::vector<Tensor>& arguments, const At& at, uint32_t index,
           std::vector<session::Rekept>& rekept) const;

  const At at_;
  std::shared_ptr<Session> session_;

  // During recording. A weak_ptr in `seen_` prevents a CloudBuffer's address from being reused.
  std::vector<std::weak_ptr<TensorState>> argument_values_;
  absl::flat_hash_map<const TensorState*, std::weak_ptr<TensorState>>
      assigned_;  // made before the step
  absl::flat_hash_map<const CloudBuffer*, std::vector<std::weak_ptr<TensorState>>> readers_;
  absl::flat_hash_map<const CloudBuffer*, Source> sources_;
  std::vector<std::shared_ptr<CloudBuffer>> symbolic_;  // arguments
  std::vector<std::weak_ptr<CloudBuffer>> seen_;

  // What was recorded.
  std::vector<Argument> arguments_;
  std::vector<BoundVariable> bound_;  // in the sizes of the recorded call
  std::vector<Run> runs_;
  std::vector<State> states_;
  std::vector<Result> results_;
  std::vector<Move> moves_;
  std::vector<std::shared_ptr<CloudBuffer>> constants_;
  std::vector<Source> returned_;
  // Made in the step, and lazy at its end: not used again once the step is sent again.
  std::vector<std::weak_ptr<TensorState>> unfinished_;
};

}  // namespace outboard::internal
