// A captured step: a function that runs twice and whose Runs are then replayed without running it.
//
//   Jit step([&](const std::vector<Tensor>& inputs, const std::vector<SymInt>&) ->
//   std::vector<Tensor> {
//     const Tensor loss = model(inputs[0]).sparse_categorical_crossentropy(inputs[1]);
//     loss.backward();
//     adam.step({loss});
//     return {loss};
//   });
//   for (...) const Tensor loss = step({images, labels})[0];
//
// The first call runs the function unchanged. The second runs it and records the Runs it sends.
// Every later call sends the same Runs with the current buffers and does not run the function, so
// it builds no graphs. Inputs:
//
//   arguments   the tensors and sizes of the call. Tensors must have the dtype and shape of the
//               second call. A bound Variable has the value of the current call, also where it is
//               in the sizes with which a tensor was computed: in the second call the argument has
//               these sizes, though it is realised.
//   state       tensors from outside that the function reads, with their value at the time of the
//               call, also if other code has assigned them; and the thread's counter of random
//               numbers.
//   constants   everything else: numbers, and tensors that the function makes from numbers, have
//               the value of the second call.
//
// Outputs: tensors and arguments that the function assigns get the value of each call, and so does
// a tensor that the function made and realised and that the program still holds outside of it.
// Returned tensors are realised, new in each call, and retain their values. The results are bit for
// bit those of running the function in each call. Replaced buffers are donated as in any realize.
//
// Errors:
//   FAILED_PRECONDITION  within the recorded function: reading or requesting a value, manual_seed,
//                        repeat() or a Jit. Later: a tensor that the function read no longer exists
//                        (it was replaced, not assigned), a tensor that the function left lazy is
//                        still held, or another session is current
//   INVALID_ARGUMENT     a call that does not match the recorded one (the message names both), an
//                        argument given twice, a value of a variable for which the parts of tensors
//                        in the step do not fit
// If the recorded call throws, nothing is recorded, and the next call records again.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "client/tensor/tensor.h"

namespace outboard {

namespace internal {
class JitStep;
}  // namespace internal

class Jit {
 public:
  using Step = std::function<std::vector<Tensor>(const std::vector<Tensor>& tensors,
                                                 const std::vector<SymInt>& sizes)>;
  explicit Jit(Step step);
  ~Jit();
  Jit(Jit&&) noexcept;
  Jit& operator=(Jit&&) noexcept;

  std::vector<Tensor> operator()(const std::vector<Tensor>& tensors = {},
                                 const std::vector<SymInt>& sizes = {}, At at = At::current());

  // True if the next call only sends.
  bool captured() const { return captured_ != nullptr; }
  // The next two calls run the function again.
  void reset();

  // ---- for other languages: the calls, one by one, of a function that is passed each time
  std::vector<Tensor> Capture(const std::vector<Tensor>& tensors, const std::vector<SymInt>& sizes,
                              const std::function<std::vector<Tensor>()>& step,
                              At at = At::current());
  std::vector<Tensor> Send(const std::vector<Tensor>& tensors, const std::vector<SymInt>& sizes,
                           At at = At::current());

 private:
  Step step_;
  bool ran_ = false;
  std::unique_ptr<internal::JitStep> captured_;
};

}  // namespace outboard
