// Tensors from numbers and bytes, and what they tell about themselves.
#include "absl/strings/str_cat.h"
#include "client/lazy/deferred_upload.h"
#include "client/lazy/node_expr.h"
#include "client/lazy/realize.h"
#include "client/lazy/sym_expression.h"
#include "client/lazy/thread_state.h"
#include "client/tensor/tensor.h"
#include "compiler/ir/limits.h"

namespace outboard {

using internal::Iota;
using internal::NodeBuilder;
using internal::NodeExpr;
using internal::TensorOf;
using internal::ThreadState;
using internal::ToShape;

namespace {
const internal::TensorState& Get(const Tensor& tensor, const At& at) {
  if (tensor.empty()) throw Error(absl::FailedPreconditionError("the tensor is empty"), at);
  return *tensor.value();
}

void CheckDims(const SymShape& sizes) {
  for (const SymInt& size : sizes)
    if (size.value() < 0) ThrowInvalid(absl::StrCat("a dimension of ", size.value()));
}

// Also the limits, before anything is sent.
void CheckBytes(DType dtype, const Dims& dims, uint64_t size_bytes) {
  const NodeBuilder rec;
  CheckDims(dims);
  std::vector<int64_t> arg = {0};
  arg.insert(arg.end(), dims.begin(), dims.end());
  const UOp* const input = rec.Make(Op::kBuffer, dtype, {}, arg);
  const int64_t wanted = ElementCount(input->shape) * ByteWidth(dtype);
  if (wanted != static_cast<int64_t>(size_bytes))
    ThrowInvalid(absl::StrCat("a tensor of ", internal::DimsToString(input->shape), " of ",
                              std::string(Name(dtype)), " has ", wanted, " bytes, not ",
                              size_bytes));
}
}  // namespace

Tensor Tensor::FromNode(const NodeBuilder& recorder, const UOp* node) {
  Tensor tensor;
  tensor.value_ = std::make_shared<internal::TensorState>();
  tensor.value_->SetLazy(recorder.lazy_graph(), node);
  tensor.value_->bound = recorder.bound();
  return tensor;
}

Tensor Tensor::FromValue(std::shared_ptr<internal::TensorState> value) {
  Tensor tensor;
  tensor.value_ = std::move(value);
  return tensor;
}

const UOp* Tensor::NodeIn(const NodeBuilder& recorder) const {
  Get(*this, recorder.at());
  const UOp* const node = internal::NodeOfValue(value_, recorder.lazy_graph(), recorder.at());
  recorder.Bind(value_->bound);
  if (!value_->lazy() && value_->storage->is_symbolic)
    for (const SymInt& size : value_->storage->sizes) recorder.Bind(internal::VariablesIn(size));
  return node;
}

Tensor Tensor::full(const SymShape& sizes, double value, DType dtype, At at) {
  const NodeBuilder rec(at);
  CheckDims(sizes);
  return FromNode(rec, rec.Full(rec.Const(dtype, value), rec.ShapeOf(sizes)));
}

Tensor Tensor::zeros(const SymShape& sizes, DType dtype, At at) {
  return full(sizes, 0, dtype, at);
}
Tensor Tensor::ones(const SymShape& sizes, DType dtype, At at) { return full(sizes, 1, dtype, at); }

Tensor Tensor::full_like(double value, At at) const {
  const NodeBuilder rec(at);
  return TensorOf(ExprOf(rec, *this).Full(value));
}
Tensor Tensor::zeros_like(At at) const { return full_like(0, at); }
Tensor Tensor::ones_like(At at) const { return full_like(1, at); }

Tensor Tensor::arange(const SymInt& n, DType dtype, At at) {
  const NodeBuilder rec(at);
  CheckDims({n});
  if (IsBool(dtype)) rec.Invalid("arange: needs numbers, not bool");
  const Shape shape = {rec.DimOf(n)};
  return TensorOf(Iota(rec, IsInt(dtype) ? dtype : DType::kI64, shape, 0).Cast(dtype));
}

Tensor Tensor::arange(int64_t begin, int64_t end, int64_t step, DType dtype, At at) {
  const NodeBuilder rec(at);
  if (IsBool(dtype)) rec.Invalid("arange: needs numbers, not bool");
  if (step == 0) rec.Invalid("arange: a step of 0");
  const __int128 away = step > 0 ? __int128{end} - begin : __int128{begin} - end;
  const __int128 size = step > 0 ? __int128{step} : -__int128{step};
  const __int128 count = away <= 0 ? 0 : (away + size - 1) / size;
  if (count > limits::kDimMax)
    rec.Invalid(absl::StrCat("arange: ", begin, " to ", end, " by ", step, " is over the limit of ",
                             limits::kDimMax, " elements"));
  const auto n = static_cast<int64_t>(count);
  if (IsInt(dtype) && n > 0) {
    const int64_t last = begin + (n - 1) * step;
    for (const int64_t value : {begin, last})
      if (value < IntMin(dtype) || value > IntMax(dtype))
        rec.Invalid(absl::StrCat("arange: ", value, " is no value of ", std::string(Name(dtype))));
  }
  const Shape shape = {Dim(n)};
  const NodeExpr i = Iota(rec, DType::kI64, shape, 0);
  return TensorOf((i * i.FullInt(step) + i.FullInt(begin)).Cast(dtype));
}

Tensor Tensor::linspace(double begin, double end, int64_t n, DType dtype, At at) {
  const NodeBuilder rec(at);
  CheckDims({n});
  if (!IsFloat(dtype))
    rec.Invalid(absl::StrCat("linspace: needs floats, not ", std::string(Name(dtype))));
  if (n < 2) return full({n}, begin, dtype);
  // From the nearer end, so that both ends are exact; in f64, rounded once.
  const Shape shape = {Dim(n)};
  const NodeExpr i = Iota(rec, DType::kI64, shape, 0).Cast(DType::kF64);
  const NodeExpr from_end = static_cast<double>(n - 1) - i;
  const double step = (end - begin) / static_cast<double>(n - 1);
  return TensorOf(Where(i < from_end, i * step + begin, end - from_end * step).Cast(dtype));
}

Tensor Tensor::eye(int64_t n, DType dtype, At at) {
  const NodeBuilder rec(at);
  CheckDims({n});
  const Shape shape = {Dim(n), Dim(n)};
  const NodeExpr i = Iota(rec, DType::kI32, shape, 0), j = Iota(rec, DType::kI32, shape, 1);
  return TensorOf((i == j).Cast(dtype));
}

Tensor Tensor::from_host(const HostTensor& host, At at) {
  return from_bytes(host.dtype, host.dims, host.bytes, at);
}

Tensor Tensor::from_bytes(DType dtype, const Dims& dims, std::string_view bytes, At at) {
  const CallSite site(at);
  CheckBytes(dtype, dims, bytes.size());
  Tensor tensor;
  tensor.value_ = std::make_shared<internal::TensorState>();
  tensor.value_->SetStorage(internal::Upload(dtype, dims, bytes, CallSite::Line()));
  return tensor;
}

Tensor Tensor::FromStored(const std::shared_ptr<Session>& session,
                          const session::StoredArray& array, const At& at) {
  const CallSite site(at);
  CheckBytes(array.dtype, array.dims, array.total_bytes);
  auto storage = std::make_shared<internal::CloudBuffer>();
  storage->handle = session->NewHandle();
  storage->dtype = array.dtype;
  storage->dims = array.dims;
  ThrowIfError(session->PutBlob(storage->handle, storage->dtype, storage->dims, array.total_bytes,
                                array.root),
               at);
  storage->session = session;
  Tensor tensor;
  tensor.value_ = std::make_shared<internal::TensorState>();
  tensor.value_->SetStorage(std::move(storage));
  return tensor;
}

Tensor Tensor::FromStorage(std::shared_ptr<internal::CloudBuffer> storage) {
  Tensor tensor;
  tensor.value_ = std::make_shared<internal::TensorState>();
  tensor.value_->SetStorage(std::move(storage));
  return tensor;
}

Tensor Tensor::from_blob(DType dtype, const Dims& dims, wire::BlobSource source,
                         std::function<void(const wire::BlobName&)> named, At at) {
  const CallSite site(at);
  CheckBytes(dtype, dims, source.size_bytes);
  absl::StatusOr<std::shared_ptr<Session>> session = CurrentSession();
  ThrowIfError(session.status(), at);
  auto storage = std::make_shared<internal::CloudBuffer>();
  storage->session = *std::move(session);
  storage->dtype = dtype;
  storage->dims = dims;
  storage->deferred = std::make_shared<internal::DeferredUpload>(
      internal::DeferredUpload{std::move(source), std::move(named)});
  Tensor tensor;
  tensor.value_ = std::make_shared<internal::TensorState>();
  tensor.value_->SetStorage(std::move(storage));
  return tensor;
}

Dims Tensor::shape(At at) const {
  const internal::TensorState& value = Get(*this, at);
  if (value.lazy() && !IsStatic(value.node->shape))
    ThrowInvalid(at, absl::StrCat("the shape ", internal::DimsToString(value.node->shape),
                                  " is of a variable; size() tells one axis"));
  if (!value.lazy() && value.storage->is_symbolic)
    ThrowInvalid(at, absl::StrCat("the shape of an argument, now ",
                                  internal::DimsToString(ToShape(value.dims())),
                                  ", is of a variable; size() tells one axis"));
  return value.dims();
}

int64_t Tensor::shape(int64_t axis, At at) const {
  const SymInt length = size(axis, at);
  return length.is_number() ? length.value() : shape(at)[0];  // which throws
}

SymInt Tensor::size(int64_t axis, At at) const {
  const internal::TensorState& value = Get(*this, at);
  const NodeBuilder rec(at);
  const int place = rec.Axis(axis, rank());
  if (!value.lazy())
    return value.storage->is_symbolic ? value.storage->sizes[place] : value.storage->dims[place];
  rec.Bind(value.bound);
  return rec.SizeOf(value.node->shape[place], *value.lazy_graph);
}

int Tensor::rank(At at) const {
  const internal::TensorState& value = Get(*this, at);
  return value.lazy() ? value.node->rank() : static_cast<int>(value.storage->dims.size());
}

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
  const CallSite site(at);
  if (on && !IsFloat(dtype()))
    ThrowInvalid(absl::StrCat("a tensor of ", std::string(Name(dtype())), " has no gradient"));
  if (on) state_();
  value_->requires_grad = on;
  return *this;
}

bool Tensor::requires_grad() const { return !empty() && value_->requires_grad; }

bool Tensor::training() { return ThreadState::Get().training; }

TrainingMode::TrainingMode(bool on) : before_(ThreadState::Get().training) {
  ThreadState::Get().training = on;
}
TrainingMode::~TrainingMode() { ThreadState::Get().training = before_; }

bool Tensor::allow_tf32() { return ThreadState::Get().allow_tf32; }

Tf32Mode::Tf32Mode(bool on) : before_(ThreadState::Get().allow_tf32) {
  ThreadState::Get().allow_tf32 = on;
}
Tf32Mode::~Tf32Mode() { ThreadState::Get().allow_tf32 = before_; }

}  // namespace outboard
