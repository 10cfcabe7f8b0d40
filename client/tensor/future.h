// A value of a tensor that was asked for and is on its way.
//
//   TensorFuture loss = trainer.Step().fetch();    // does not wait
//   ...                                            // more steps
//   std::printf("%f\n", loss.item());              // waits only if it has not come yet
//
// It is the value that the tensor had when it was asked for, whatever is assigned to the tensor
// later, and keeps no memory in the cloud once the next step was sent. Copies are one future. What
// is asked for once (fetch, realize, Optimizer::step) travels once: reading the tensor itself takes
// the same answer.
//
// Errors are thrown as error.h says, at the line that reads: what the computation failed with, and
// FAILED_PRECONDITION for an empty future. Reading a failed one again throws the same.
// Threads: one at a time for copies of one future and the tensor that it came from.
#pragma once

#include <memory>
#include <vector>

#include "client/lazy/host_values.h"
#include "client/tensor/error.h"
#include "compiler/ir/host_tensor.h"

namespace outboard {

namespace internal {
struct PendingValue;
}  // namespace internal

class TensorFuture {
 public:
  TensorFuture() = default;  // empty
  bool empty() const { return fetched_ == nullptr; }

  bool ready(At at = At::current()) const;  // reading it would not wait
  void wait(At at = At::current()) const;   // throws what reading would throw
  HostTensor to_host(At at = At::current()) const;
  // Of one element, converted to T. 64-bit integers above 2^53 need item<int64_t>().
  template <typename T = double>
  T item(At at = At::current()) const {
    return ElementAt<T>(WaitForOne(at), 0);
  }
  template <typename T>
  std::vector<T> to_vector(At at = At::current()) const {  // row-major, converted to T
    return ElementsAs<T>(Wait(at));
  }

  // ---- for the library
  explicit TensorFuture(std::shared_ptr<internal::PendingValue> fetched)
      : fetched_(std::move(fetched)) {}

 private:
  const HostTensor& Wait(const At& at) const;
  const HostTensor& WaitForOne(const At& at) const;

  std::shared_ptr<internal::PendingValue> fetched_;
};

}  // namespace outboard
