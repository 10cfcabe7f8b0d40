// Reading a value: Tensor::to_host and fetch, and a TensorFuture, which is one that was asked for.
#include "client/tensor/future.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/capture/step_observer.h"
#include "client/lazy/lazy_graph.h"
#include "client/lazy/node_builder.h"
#include "client/lazy/pending_value.h"
#include "client/lazy/realize.h"
#include "client/ops/index/part_of.h"
#include "client/tensor/tensor.h"

namespace outboard {
namespace {

// A value larger than this is asked for again if its tensor is read again; others stay here.
constexpr size_t kReadAgainBytesMax = 1 << 20;

void RefuseInStep(const At& at) {
  if (const auto* step = internal::StepObserver::Current(); step != nullptr)
    step->Refuse(at,
                 "a value is asked for within the step, which is recorded once for all times that "
                 "it is done; return the tensor, and read it then");
}

// Asks for the tensor's value, unless it is here or on its way: a lazy tensor is realised by a Run
// that sends the value too, and of one that is realised the value is fetched. Returns its storage,
// whose `fetched` is the value.
internal::CloudBuffer& AskForValue(const Tensor& tensor, const At& at) {
  RefuseInStep(at);
  if (tensor.empty()) throw Error(absl::FailedPreconditionError("the tensor is empty"), at);
  const std::shared_ptr<internal::TensorState>& value = tensor.value();
  internal::FollowWhole(*value);
  if (value->lazy() || value->storage->fetched == nullptr) internal::RealizeValues({}, {value}, at);
  return *value->storage;
}

void CheckOne(const Dims& dims, const At& at) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  if (count == 1) return;
  ThrowInvalid(at, absl::StrCat("item() needs one element, not the ", count, " of ",
                                internal::DimsToString(internal::ToShape(dims))));
}

HostTensor& Answer(internal::PendingValue& fetched, const At& at) {
  absl::StatusOr<HostTensor>& host = fetched.Wait();
  ThrowIfError(host.status(), at);
  return *host;
}

}  // namespace

HostTensor Tensor::to_host(At at) const {
  internal::CloudBuffer& storage = AskForValue(*this, at);
  HostTensor& host = Answer(*storage.fetched, at);
  if (host.bytes.size() <= kReadAgainBytesMax) return host;
  const std::shared_ptr<internal::PendingValue> fetched = std::move(storage.fetched);
  return fetched.use_count() == 1 ? std::move(host) : host;
}

HostTensor Tensor::OneElement(const At& at) const {
  CheckOne(shape(at), at);
  return to_host(at);
}

TensorFuture Tensor::fetch(At at) const { return TensorFuture(AskForValue(*this, at).fetched); }

std::vector<TensorFuture> fetch(const std::vector<Tensor>& tensors, At at) {
  RefuseInStep(at);
  realize({}, tensors, at);
  std::vector<TensorFuture> futures;
  for (const Tensor& tensor : tensors) futures.emplace_back(tensor.value()->storage->fetched);
  return futures;
}

const HostTensor& TensorFuture::Wait(const At& at) const {
  if (empty()) throw Error(absl::FailedPreconditionError("the future is empty"), at);
  return Answer(*fetched_, at);
}

const HostTensor& TensorFuture::WaitForOne(const At& at) const {
  if (!empty()) CheckOne(fetched_->dims, at);
  return Wait(at);
}

bool TensorFuture::ready(At at) const {
  if (empty()) throw Error(absl::FailedPreconditionError("the future is empty"), at);
  return fetched_->ready();
}

void TensorFuture::wait(At at) const { Wait(at); }

HostTensor TensorFuture::to_host(At at) const { return Wait(at); }

}  // namespace outboard
