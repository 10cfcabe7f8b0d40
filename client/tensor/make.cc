// Tensors from numbers and bytes, and what they tell about themselves.
#include "absl/strings/str_cat.h"
#include "client/tensor/recorder.h"
#include "client/tensor/tensor.h"
#include "client/tensor/thread_state.h"

namespace outboard {

using internal::Recorder;
using internal::ThreadState;
using internal::ToShape;

namespace {
const internal::Value& Get(const Tensor& tensor, const At& at) {
  if (tensor.empty()) throw Error(absl::FailedPreconditionError("the tensor is empty"), at);
  return *tensor.value();
}

void CheckDims(const Dims& dims, const At& at) {
  for (const int64_t dim : dims)
    if (dim < 0) ThrowInvalid(at, absl::StrCat("a dimension of ", dim));
}
}  // namespace

Tensor Tensor::FromNode(const Recorder& recorder, const UOp* node) {
  Tensor tensor;
  tensor.value_ = std::make_shared<internal::Value>();
  tensor.value_->SetLazy(recorder.recording(), node);
  return tensor;
}

const UOp* Tensor::NodeIn(const Recorder& recorder) const {
  Get(*this, recorder.at());
  return internal::NodeOfValue(value_, recorder.recording(), recorder.at());
}

Tensor Tensor::full(const Dims& dims, double value, DType dtype, At at) {
  CheckDims(dims, at);
  const Recorder rec(at);
  return FromNode(rec, rec.Full(rec.Const(dtype, value), ToShape(dims)));
}

Tensor Tensor::zeros(const Dims& dims, DType dtype, At at) { return full(dims, 0, dtype, at); }
Tensor Tensor::ones(const Dims& dims, DType dtype, At at) { return full(dims, 1, dtype, at); }

Tensor Tensor::arange(int64_t n, DType dtype, At at) {
  CheckDims({n}, at);
  const Recorder rec(at);
  if (IsBool(dtype)) rec.Invalid("arange: needs numbers, not bool");
  const Shape shape = {Dim(n)};
  if (IsInt(dtype)) return FromNode(rec, rec.IotaAlong(dtype, shape, 0));
  return FromNode(rec, rec.Cast(rec.IotaAlong(DType::kI64, shape, 0), dtype));
}

Tensor Tensor::eye(int64_t n, DType dtype, At at) {
  CheckDims({n}, at);
  const Recorder rec(at);
  const Shape shape = {Dim(n), Dim(n)};
  const UOp* const same = rec.Alu(Op::kCmpEq, rec.IotaAlong(DType::kI32, shape, 0),
                                  rec.IotaAlong(DType::kI32, shape, 1));
  return FromNode(rec, rec.Cast(same, dtype));
}

Tensor Tensor::from_host(const HostTensor& host, At at) {
  return from_bytes(host.dtype, host.dims, host.bytes, at);
}

Tensor Tensor::from_bytes(DType dtype, const Dims& dims, std::string_view bytes, At at) {
  CheckDims(dims, at);
  // Also checks the limits, before anything is sent.
  const Recorder rec(at);
  std::vector<int64_t> arg = {0};
  arg.insert(arg.end(), dims.begin(), dims.end());
  const UOp* const input = rec.Make(Op::kBuffer, dtype, {}, arg);
  const int64_t wanted = ElementCount(input->shape) * ByteWidth(dtype);
  if (wanted != static_cast<int64_t>(bytes.size()))
    ThrowInvalid(
        at, absl::StrCat("a tensor of ", internal::DimsToString(input->shape), " of ",
                         std::string(Name(dtype)), " has ", wanted, " bytes, not ", bytes.size()));
  Tensor tensor;
  tensor.value_ = std::make_shared<internal::Value>();
  tensor.value_->SetStorage(internal::Upload(dtype, dims, bytes, at));
  return tensor;
}

Dims Tensor::shape(At at) const { return Get(*this, at).dims(); }

int64_t Tensor::shape(int64_t axis, At at) const {
  const Dims dims = shape(at);
  return dims[Recorder(at).Axis(axis, static_cast<int>(dims.size()))];
}

int Tensor::rank(At at) const { return static_cast<int>(shape(at).size()); }

int64_t Tensor::numel(At at) const {
  int64_t count = 1;
  for (const int64_t dim : shape(at)) count *= dim;
  return count;
}

DType Tensor::dtype(At at) const { return Get(*this, at).dtype(); }

Tensor& Tensor::state_(At at) {
  Get(*this, at);
  ThreadState::Get().AddState(value_);
  return *this;
}

Tensor& Tensor::requires_grad_(bool on, At at) {
  if (on && !IsFloat(dtype(at)))
    ThrowInvalid(at,
                 absl::StrCat("a tensor of ", std::string(Name(dtype(at))), " has no gradient"));
  if (on) state_(at);
  value_->requires_grad = on;
  return *this;
}

bool Tensor::requires_grad() const { return !empty() && value_->requires_grad; }

bool Tensor::training() { return ThreadState::Get().training; }

TrainingMode::TrainingMode(bool on) : before_(ThreadState::Get().training) {
  ThreadState::Get().training = on;
}
TrainingMode::~TrainingMode() { ThreadState::Get().training = before_; }

}  // namespace outboard
