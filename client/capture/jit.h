// A step of a program that is run twice and then only sent.
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
// The first call runs the function as it is, the second runs it and records what it sends, and
// every later one sends the same again, with the buffers of now, without running the function:
// building graphs costs nothing then. What goes in:
//
//   arguments   the tensors and sizes of the call. Tensors have the dtype and shape of the second
//               call. A bound Variable has the value of the call.
//   state       tensors from outside that the function reads, with the value that they have at the
//               time of the call, also if something else has assigned them; and the thread's
//               counter of random numbers.
//   constants   all else: numbers, and tensors that the function makes from numbers, are those of
//               the second call.
//
// What comes out: what the function assigns is assigned; a tensor that it made, realised and that
// the program has kept elsewhere gets the value of each call, as does an argument that is assigned.
// What it returns is realised, and new tensors each time, which keep their values. The bits are
// those of the function called each time. Buffers that are replaced are donated as in any realize.
//
// Errors:
//   FAILED_PRECONDITION  within the recorded function: a value that is read or asked for,
//                        manual_seed, repeat() or a Jit. Later: a tensor that the function read is
//                        gone (it was replaced, not assigned), or that it left without a value and
//                        is kept, or another session
//   INVALID_ARGUMENT     a call that does not match the recorded one (the message names both), an
//                        argument given twice
// Where the recorded call throws nothing is recorded, and the next one records again.
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

  // Whether the next call only sends.
  bool captured() const { return captured_ != nullptr; }
  // The next two calls run the function again.
  void reset();

  // ---- for other languages: the calls, one by one, of a function that is given each time
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
