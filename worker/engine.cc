#include "worker/engine.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/ir/check.h"
#include "compiler/ir/print.h"
#include "compiler/ir/spec.h"

namespace outboard::worker {

absl::StatusOr<std::shared_ptr<Array>> Engine::NewArray(DType dtype, std::vector<int64_t> dims) {
  int64_t bytes = ByteWidth(dtype);
  for (const int64_t dim : dims)
    if (dim < 0 || __builtin_mul_overflow(bytes, dim, &bytes))
      return absl::ResourceExhaustedError(
          absl::StrCat("an array of [", absl::StrJoin(dims, ", "), "] is too large"));
  OB_ASSIGN_OR_RETURN(cpu::Buffer buffer,
                      memory().Allocate(bytes, cpu::Allocator::Contents::kUndefined));
  return std::make_shared<Array>(Array{dtype, std::move(dims), std::move(buffer)});
}

absl::Status CheckInputs(const UOp* sink, std::span<const ArrayPtr> inputs,
                         std::span<const Binding> bindings) {
  for (const UOp* var : VarsOf(sink)) {
    const auto bound = std::find_if(bindings.begin(), bindings.end(), [&](const Binding& binding) {
      return binding.slot == var->arg[0];
    });
    if (bound == bindings.end())
      return absl::InvalidArgumentError(absl::StrCat("VAR ", var->arg[0], " is not bound"));
    if (bound->value < var->arg[1] || bound->value > var->arg[2])
      return absl::InvalidArgumentError(absl::StrCat("VAR ", var->arg[0], " is bound to ",
                                                     bound->value, ", which is not in ",
                                                     var->arg[1], "..", var->arg[2]));
  }
  const std::vector<const UOp*> params = ParamsOf(sink);
  if (params.size() != inputs.size())
    return absl::InvalidArgumentError(
        absl::StrCat("the graph has ", params.size(), " inputs, the Run gives ", inputs.size()));
  for (size_t i = 0; i < params.size(); ++i) {
    const UOp& param = *params[i];
    bool fits = param.dtype == inputs[i]->dtype && param.shape.size() == inputs[i]->dims.size();
    for (size_t d = 0; fits && d < param.shape.size(); ++d)
      fits = param.shape[d].is_const() ? param.shape[d].value() == inputs[i]->dims[d]
                                       : inputs[i]->dims[d] >= param.shape[d].min() &&
                                             inputs[i]->dims[d] <= param.shape[d].max();
    if (!fits)
      return absl::InvalidArgumentError(
          absl::StrCat("input ", i, " is ", std::string(Name(inputs[i]->dtype)), "[",
                       absl::StrJoin(inputs[i]->dims, ", "), "], the graph wants ",
                       std::string(Name(param.dtype)), ShapeToString(param.shape)));
  }
  return absl::OkStatus();
}

}  // namespace outboard::worker
