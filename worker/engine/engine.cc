#include "worker/engine/engine.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/print.h"
#include "compiler/ir/spec.h"
#include "compiler/rewrite/bind.h"
#include "worker/engine/repeat.h"

namespace outboard::worker {

namespace {

absl::StatusOr<int64_t> BytesOf(DType dtype, const std::vector<int64_t>& dims) {
  int64_t bytes = ByteWidth(dtype);
  for (const int64_t dim : dims)
    if (dim < 0 || __builtin_mul_overflow(bytes, dim, &bytes))
      return absl::ResourceExhaustedError(
          absl::StrCat("an array of [", absl::StrJoin(dims, ", "), "] is too large"));
  return bytes;
}

}  // namespace

absl::StatusOr<std::shared_ptr<DeviceArray>> Engine::NewArray(DType dtype,
                                                              std::vector<int64_t> dims) {
  OB_ASSIGN_OR_RETURN(const int64_t bytes, BytesOf(dtype, dims));
  OB_ASSIGN_OR_RETURN(runtime::DeviceBuffer buffer, NewBuffer(bytes));
  return std::make_shared<DeviceArray>(DeviceArray{dtype, std::move(dims), std::move(buffer)});
}

absl::StatusOr<std::shared_ptr<DeviceArray>> Engine::NewArrayForUpload(DType dtype,
                                                                       std::vector<int64_t> dims) {
  OB_ASSIGN_OR_RETURN(const int64_t bytes, BytesOf(dtype, dims));
  OB_ASSIGN_OR_RETURN(runtime::DeviceBuffer buffer, device_->AllocateForUpload(bytes));
  return std::make_shared<DeviceArray>(DeviceArray{dtype, std::move(dims), std::move(buffer)});
}

absl::StatusOr<std::vector<DeviceArrayPtr>> Engine::ExecuteRepeated(
    const GraphId& id, const UOp* sink, std::vector<DeviceArrayPtr> inputs,
    std::span<const Binding> bindings, const Repeat& repeat,
    const std::function<void()>& on_repetition) {
  OB_RETURN_IF_ERROR(CheckInputs(sink, inputs, bindings));
  OB_RETURN_IF_ERROR(CheckRepeat(sink, bindings, repeat));
  const std::vector<int64_t> carried = repeat.CarriedInputs();
  return ExecuteAll(
      *this, sink, std::move(inputs), bindings, repeat,
      [&](std::vector<DeviceArrayPtr> now, std::span<const Binding> bound) {
        return Execute(id, sink, std::move(now), bound, carried);
      },
      on_repetition);
}

absl::StatusOr<std::vector<Binding>> Engine::WithRank(std::span<const Binding> bindings) const {
  std::vector<Binding> all(bindings.begin(), bindings.end());
  for (const Binding& binding : bindings)
    if (binding.slot == limits::kRankSlot)
      return absl::InvalidArgumentError(
          absl::StrCat("VAR ", limits::kRankSlot, " is the rank, which a Run cannot bind"));
  if (collective_ == nullptr) return all;
  OB_RETURN_IF_ERROR(collective_->status());
  all.push_back({limits::kRankSlot, collective_->member().rank});
  return all;
}

absl::Status Engine::EndGroupIfFailed(absl::Status status) {
  if (!status.ok() && collective_ != nullptr) collective_->Abort(status);
  return status;
}

absl::Status CheckBytes(DType dtype, const std::vector<int64_t>& dims, int64_t bytes) {
  OB_ASSIGN_OR_RETURN(const int64_t wanted, BytesOf(dtype, dims));
  if (bytes == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(bytes, " bytes for an array of ", wanted));
}

absl::Status CheckInputs(const UOp* sink, std::span<const DeviceArrayPtr> inputs,
                         std::span<const Binding> bindings) {
  OB_RETURN_IF_ERROR(CheckBindings(VarsOf(sink), bindings));
  const std::vector<const UOp*> params = ParamsOf(sink);
  if (params.size() != inputs.size())
    return absl::InvalidArgumentError(
        absl::StrCat("the graph has ", params.size(), " inputs, the Run gives ", inputs.size()));
  for (size_t i = 0; i < params.size(); ++i) {
    const UOp& param = *params[i];
    OB_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, DimsAt(param.shape, bindings));
    if (param.dtype == inputs[i]->dtype && dims == inputs[i]->dims) continue;
    const bool fixed = IsStatic(param.shape);
    return absl::InvalidArgumentError(absl::StrCat(
        "input ", i, " is ", std::string(Name(inputs[i]->dtype)), "[",
        absl::StrJoin(inputs[i]->dims, ", "), "], the graph wants ", std::string(Name(param.dtype)),
        ShapeToString(param.shape),
        fixed ? "" : absl::StrCat(", which here is [", absl::StrJoin(dims, ", "), "]")));
  }
  return absl::OkStatus();
}

}  // namespace outboard::worker
