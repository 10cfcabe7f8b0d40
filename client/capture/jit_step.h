// A step of the program that is recorded once and sent again without being run again: what stands
// behind Jit (jit.h).
//
// Invariants
//   1. While it is recorded the step is run as always, and every Run that it sends is remembered,
//      with where each of its inputs came from: an argument, a result of an earlier one of its
//      Runs, a tensor that was there before, or bytes that the step itself made.
//   2. A tensor that was there before is read as it is when the step is sent again: its TensorState
//      is known, not its buffer. One that is lazy when the step reads it first is realised then,
//      apart from the step.
//   3. A result belongs to the Values that had it when the recording was over; each time the step
//      is sent they get the new one. What the step returns is new Values each time.
//   4. An input whose last owner the step is, after its last Run that reads it, is given up to that
//      Run, as in any realize.
//
// Errors (thrown): as jit.h says. Threads: the one that records, then one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "client/capture/step_observer.h"
#include "client/tensor/tensor.h"

namespace outboard::internal {

class JitStep : public StepObserver {
 public:
  // Begins to record a step that is given these.
  JitStep(const std::vector<Tensor>& arguments, const std::vector<SymInt>& sizes, const At& at);

  // Ends it, realising what it returned. The same tensors, apart from those that the step may have
  // kept.
  std::vector<Tensor> Finish(const std::vector<Tensor>& returned);

  // Sends it again.
  std::vector<Tensor> Send(const std::vector<Tensor>& arguments, const std::vector<SymInt>& sizes,
                           const At& at);

  // ---- what the library tells of
  void OnRead(const std::shared_ptr<TensorState>& value, const At& at) override;
  void OnAssign(const std::shared_ptr<TensorState>& value, const At& at) override;
  bool OnRealize(const std::vector<std::shared_ptr<TensorState>>& values,
                 const std::vector<std::shared_ptr<TensorState>>& fetch, const At& at) override;
  void OnState(const TensorState& value, const At& at) const override {}
  void OnRun(const SentRun& run, const At& at) override;
  [[noreturn]] void Refuse(const At& at, const std::string& what) const override;

 private:
  // Where a buffer comes from that a Run reads or the step returns.
  struct Source {
    enum class Kind { kArgument, kState, kResult, kConstant } kind;
    size_t index;  // in the call's arguments, states_, results_ or constants_
  };
  struct Argument {
    DType dtype;
    std::vector<int64_t> dims;
  };
  // A tensor that was there before, and others with the same buffer.
  struct State {
    const CloudBuffer* recorded;
    std::vector<std::weak_ptr<TensorState>> values;
    DType dtype;
    std::vector<int64_t> dims;
    bool is_random_key = false, is_random_counter = false;  // those of the thread that sends
  };
  struct Result {
    std::weak_ptr<CloudBuffer> recorded;
    DType dtype;
    std::vector<int64_t> dims;                       // where they are numbers
    Shape shape;                                     // else; of the Run's recording
    std::vector<std::weak_ptr<TensorState>> owners;  // were there before, or are kept
    std::vector<size_t> arguments;                   // that it was assigned to
    bool is_random_counter = false;
    std::optional<size_t> replaces;  // the input of its Run whose owner it gets
  };
  struct Run {
    transport::RunRequest request;  // handles and donations are those of the last time
    std::vector<Source> inputs;
    std::vector<bool> is_last;  // no later Run reads this input, and it is not returned
    size_t first_result;
    std::vector<Variable> variables;  // behind the VAR slots
    std::shared_ptr<const Lines> lines;
    At at;
    std::shared_ptr<LazyGraph> recording;
  };
  // The buffers of one Send, each until its last Run.
  struct Sending {
    std::vector<std::shared_ptr<CloudBuffer>> arguments, states, results;
    std::vector<BoundVariable> bound;
    At at;
  };

  void Remember(const std::shared_ptr<CloudBuffer>& storage, Source source);
  void AddReader(const std::shared_ptr<TensorState>& value);
  Source SourceOf(const std::shared_ptr<CloudBuffer>& storage);
  void FindStates();
  void FindOwners();
  void FindLastReads();

  void CheckKept(const At& at) const;
  void CheckArguments(const std::vector<Tensor>& arguments, const At& at) const;
  std::vector<BoundVariable> BoundIn(const std::vector<SymInt>& sizes, const At& at) const;
  void RealizeInputs(const std::vector<Tensor>& arguments, const At& at) const;
  std::shared_ptr<CloudBuffer> NowOf(const State& state, const At& at) const;
  std::shared_ptr<CloudBuffer>& BufferOf(const Source& source, Sending& sending);
  void SendRun(Run& run, const std::vector<Tensor>& arguments, Sending& sending);
  std::shared_ptr<CloudBuffer> MakeResult(const Result& result, const Run& run,
                                          const std::vector<Binding>& bindings) const;
  void Own(const Result& result, const std::shared_ptr<CloudBuffer>& storage,
           const std::vector<Tensor>& arguments, const At& at) const;

  const At at_;
  std::shared_ptr<Session> session_;

  // While it is recorded. A weak_ptr in `seen_` keeps an address from being another CloudBuffer's.
  std::vector<std::weak_ptr<TensorState>> argument_values_;
  absl::flat_hash_set<const TensorState*> assigned_;  // made before
  absl::flat_hash_map<const CloudBuffer*, std::vector<std::weak_ptr<TensorState>>> readers_;
  absl::flat_hash_map<const CloudBuffer*, Source> sources_;
  std::vector<std::weak_ptr<CloudBuffer>> seen_;

  // What was recorded.
  std::vector<Argument> arguments_;
  std::vector<BoundVariable> bound_;  // in the sizes that were given
  std::vector<Run> runs_;
  std::vector<State> states_;
  std::vector<Result> results_;
  std::vector<std::shared_ptr<CloudBuffer>> constants_;
  std::vector<Source> returned_;
  std::vector<std::weak_ptr<TensorState>> unfinished_;  // made in the step, and lazy at its end
};

}  // namespace outboard::internal
