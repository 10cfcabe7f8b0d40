// A tensor value that was requested and may still be in flight.
//
//   TensorFuture loss = trainer.Step().fetch();    // does not wait
//   ...                                            // more steps
//   std::printf("%f\n", loss.item());              // waits only if it has not come yet
//
// A future holds the value that the tensor had when it was requested, whatever is assigned to the
// tensor later, and uses no memory in the cloud once the next step was sent. Copies share one
// future. A value that was requested by fetch, realize or Optimizer::step is sent only once:
// reading the tensor itself uses the same answer.
//
// Errors are thrown as outboard::Error (error.h) at the line that reads: the error of the
// computation, and FAILED_PRECONDITION for an empty future. Reading a failed future again throws
// the same error. Threads: one at a time for all copies of a future and the tensor that it came
// from.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "client/tensor/error.h"
#include "compiler/ir/dtype.h"
#include "compiler/ir/host_tensor.h"

namespace outboard {

// Reads elements of a tensor in this process as C++ numbers: each is converted to T by static_cast.
// Requires that the bytes match dtype and dims.

template <typename T>
T ElementAt(const HostTensor& host, int64_t i) {
  const char* const place = host.bytes.data() + i * ByteWidth(host.dtype);
  return IsFloat(host.dtype) ? static_cast<T>(LoadFloat(host.dtype, place))
                             : static_cast<T>(LoadInt(host.dtype, place));
}

template <typename T>
std::vector<T> ElementsAs(const HostTensor& host) {
  std::vector<T> values(host.ElementCount());
  for (size_t i = 0; i < values.size(); ++i) values[i] = ElementAt<T>(host, i);
  return values;
}

namespace internal {
struct PendingValue;
}  // namespace internal

class TensorFuture {
 public:
  TensorFuture() = default;  // empty
  bool empty() const { return fetched_ == nullptr; }

  bool ready(At at = At::current()) const;  // true: reading would not block
  void wait(At at = At::current()) const;   // throws the errors of reading
  HostTensor to_host(At at = At::current()) const;
  // Returns the value of a one-element tensor, converted to T. 64-bit integers above 2^53 need
  // item<int64_t>().
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
