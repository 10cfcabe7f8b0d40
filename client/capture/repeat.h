// K steps of a program as one message.
//
//   const Tensor losses = repeat(50, [&] { return trainer.Step(); });      // f32[50], on its way
//
//   const Variable i("i", 0, 999);
//   repeat(1000, i.bind(0), [&](const SymInt& i) {                           // i is 0, 1 ... 999
//     const Tensor x = data.slice(0, i * 64, (i + 1) * 64);
//     total.assign(total + x.sum());
//   });
//
// The step is written as for one time: it computes, assigns, and may end with one realize(), as an
// optimiser's step() does. It is called once and recorded; what it assigned (weights, moments,
// running means, the counter of random numbers) is what the next repetition begins with, and in the
// end what the tensors are. What it returns, a Tensor or a vector of them, has a leading axis of K:
// one value of each step. What it asks for (step({loss})) is sent back with the same message. The
// bits are those of K calls of the step, one after another.
//
// With an index the step's variable rises by one from repetition to repetition. Its SymInt may
// stand wherever a size may (variable.h); index.value() is a number of this program, and as such
// that of the first repetition.
//
// Since the step runs once, everything that it does besides computing is done once: what it prints
// or counts, numbers that it makes tensors of. Errors, thrown at the line that is wrong, before
// anything is sent, and with everything as it was before repeat():
//   FAILED_PRECONDITION  a second realize, a value that is read or asked for, a gradient that is
//                        left, a tensor that is kept but not returned, one that is assigned but was
//                        not realised before
//   INVALID_ARGUMENT     K below 1 or over wire::kRepeatMax, an index that leaves its variable's
//                        range, a result whose shape depends on it
// A repetition that fails in the cloud fails the whole: what the step assigns and returns is lost,
// and reading it says which repetition it was.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "client/capture/repeat_step.h"
#include "client/tensor/tensor.h"

namespace outboard {

namespace internal {

template <typename Step>
auto FinishRepeated(RepeatStep& recorded, const Step& step) {
  using Result = std::invoke_result_t<const Step&>;
  if constexpr (std::is_void_v<Result>) {
    step();
    recorded.Finish({});
  } else if constexpr (std::is_same_v<Result, std::vector<Tensor>>) {
    return recorded.Finish(step());
  } else {
    static_assert(std::is_same_v<Result, Tensor>,
                  "a step returns nothing, a Tensor or a vector of them");
    std::vector<Tensor> returned;
    returned.push_back(step());
    return recorded.Finish(std::move(returned))[0];
  }
}

}  // namespace internal

template <std::invocable Step>
auto repeat(int64_t count, Step&& step, At at = At::current()) {
  internal::RepeatStep recorded(count, nullptr, at);
  return internal::FinishRepeated(recorded, [&] { return step(); });
}

template <std::invocable<const SymInt&> Step>
auto repeat(int64_t count, const SymInt& index, Step&& step, At at = At::current()) {
  internal::RepeatStep recorded(count, &index, at);
  return internal::FinishRepeated(recorded, [&] { return step(index); });
}

}  // namespace outboard
