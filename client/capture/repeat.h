// Sends K repetitions of a step of the program as one message.
//
//   const Tensor losses = repeat(50, [&] { return trainer.Step(); });      // f32[50], on its way
//
//   const Variable i("i", 0, 999);
//   repeat(1000, i.bind(0), [&](const SymInt& i) {                           // i is 0, 1 ... 999
//     const Tensor x = data.slice(0, i * 64, (i + 1) * 64);
//     total.assign(total + x.sum());
//   });
//
// The step is written as for one repetition: it computes, assigns, and may end with one realize(),
// as an optimiser's step() does. It is called once and recorded. The values that it assigns
// (weights, moments, running means, the counter of random numbers) are the inputs of the next
// repetition, and finally the values of the tensors. Its result, a Tensor or a vector of them, gets
// a leading axis of length K with one value per repetition. A value that it fetches (step({loss}))
// is sent back with the same message. The results are bit for bit those of K calls of the step.
//
// With an index, the step's variable increases by one per repetition. Its SymInt can be used
// wherever a size can (variable.h); index.value() is a number in this process and therefore that of
// the first repetition.
//
// Because the step runs once, its side effects happen once: printing, counting, and making tensors
// from numbers. Errors are thrown at the offending line, before anything is sent, and leave
// everything as it was before repeat():
//   FAILED_PRECONDITION  a second realize, reading or requesting a value, a leftover gradient, a
//                        tensor that is still held but not returned, an assign to a tensor that was
//                        not realised before
//   INVALID_ARGUMENT     K below 1 or over wire::kRepeatMax, an index that leaves its variable's
//                        range, a result whose shape depends on it
// If a repetition fails in the cloud, all fail: the assigned and returned values are lost, and
// reading one names the repetition that failed.
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
