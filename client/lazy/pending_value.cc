#include "client/lazy/pending_value.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/capture/step_observer.h"
#include "client/lazy/lazy_graph.h"
#include "client/lazy/node_builder.h"
#include "client/lazy/thread_state.h"
#include "client/ops/index/part_of.h"
#include "client/tensor/tensor.h"
#include "wire/limits.h"

namespace outboard {
namespace internal {
namespace {

// What comes back must be what the graph says, whatever the other side does.
absl::Status CheckAnswer(const HostTensor& host, const PendingValue& wanted) {
  if (host.dtype == wanted.dtype && host.dims == wanted.dims &&
      static_cast<int64_t>(host.bytes.size()) == host.ElementCount() * ByteWidth(host.dtype))
    return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "the cloud sent ", std::string(Name(host.dtype)), DimsToString(ToShape(host.dims)), " of ",
      host.bytes.size(), " bytes for a value that is ", std::string(Name(wanted.dtype)),
      DimsToString(ToShape(wanted.dims))));
}

}  // namespace

PendingValue::~PendingValue() {
  if (!has_come()) session->Forget(seq, index);
}

absl::StatusOr<HostTensor>& PendingValue::Wait() {
  if (!has_come()) {
    absl::StatusOr<HostTensor> host = session->Await(seq, index);
    interrupted = !host.ok() && !session->Ready(seq, index);
    answer = std::move(host);
    if (answer->ok())
      if (absl::Status status = CheckAnswer(**answer, *this); !status.ok())
        answer = std::move(status);
  }
  return *answer;
}

void Expect(CloudBuffer& storage, uint64_t seq, uint32_t index) {
  storage.fetched = std::make_shared<PendingValue>();
  storage.fetched->session = storage.session;
  storage.fetched->seq = seq;
  storage.fetched->index = index;
  storage.fetched->dtype = storage.dtype;
  storage.fetched->dims = storage.dims;
}

void Ask(std::span<const std::shared_ptr<CloudBuffer>> storages, const At& at) {
  Define(storages, at);
  std::vector<CloudBuffer*> missing;
  for (const std::shared_ptr<CloudBuffer>& storage : storages)
    if (storage->fetched == nullptr &&
        std::find(missing.begin(), missing.end(), storage.get()) == missing.end())
      missing.push_back(storage.get());
  while (!missing.empty()) {  // once for each session: more than one only after a new session
    Session& session = *missing.front()->session;
    std::vector<CloudBuffer*> asked, later;
    std::vector<uint64_t> handles;
    for (CloudBuffer* const storage : missing) {
      const bool now = storage->session.get() == &session && asked.size() < wire::kRunHandlesMax;
      (now ? asked : later).push_back(storage);
      if (now) handles.push_back(storage->handle);
    }
    const absl::StatusOr<uint64_t> seq = session.Fetch(handles);
    ThrowIfError(seq.status(), at);
    for (uint32_t i = 0; i < asked.size(); ++i) Expect(*asked[i], *seq, i);
    missing = std::move(later);
  }
}

}  // namespace internal

namespace {

// A value larger than this is asked for again if its tensor is read again.
constexpr size_t kKeptBytesMax = 1 << 20;

void RefuseInStep(const At& at) {
  if (const auto* step = internal::StepObserver::Current(); step != nullptr)
    step->Refuse(at,
                 "a value is asked for within the step, which is recorded once for all times that "
                 "it is done; return the tensor, and read it then");
}

internal::CloudBuffer& AskedFor(const Tensor& tensor, const At& at) {
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
  internal::CloudBuffer& storage = AskedFor(*this, at);
  HostTensor& host = Answer(*storage.fetched, at);
  if (host.bytes.size() <= kKeptBytesMax) return host;
  const std::shared_ptr<internal::PendingValue> fetched = std::move(storage.fetched);
  return fetched.use_count() == 1 ? std::move(host) : host;
}

HostTensor Tensor::OneElement(const At& at) const {
  CheckOne(shape(at), at);
  return to_host(at);
}

TensorFuture Tensor::fetch(At at) const { return TensorFuture(AskedFor(*this, at).fetched); }

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
