#include "compiler/rewrite/bind.h"

#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/rewrite/rules/fold.h"
#include "compiler/rewrite/substitute.h"

namespace outboard {
namespace {

absl::StatusOr<int64_t> ValueOfVar(const UOp* var, std::span<const Binding> bindings) {
  for (const Binding& binding : bindings)
    if (binding.slot == VarOf(var).slot()) return binding.value;
  return absl::InvalidArgumentError(absl::StrCat("VAR ", VarOf(var).slot(), " is not bound"));
}

}  // namespace

absl::Status CheckBindings(std::span<const UOp* const> vars, std::span<const Binding> bindings) {
  for (const UOp* var : vars) {
    OB_ASSIGN_OR_RETURN(const int64_t value, ValueOfVar(var, bindings));
    const auto same_slot = [&](const Binding& b) { return b.slot == VarOf(var).slot(); };
    if (std::count_if(bindings.begin(), bindings.end(), same_slot) > 1)
      return absl::InvalidArgumentError(absl::StrCat("VAR ", VarOf(var).slot(), " is bound twice"));
    if (value < VarOf(var).min() || value > VarOf(var).max())
      return absl::InvalidArgumentError(absl::StrCat("VAR ", VarOf(var).slot(), " is bound to ",
                                                     value, ", which is not in ", VarOf(var).min(),
                                                     "..", VarOf(var).max()));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ValueAt(const UOp* scalar, std::span<const Binding> bindings) {
  OB_CHECK(scalar->of_vars);
  absl::flat_hash_map<const UOp*, int64_t> values;
  for (const UOp* node : PostOrder(scalar)) {
    const auto source = [&](size_t i) { return values.at(node->src[i]); };
    std::optional<int64_t> value;
    switch (node->op) {
      case Op::kConst: value = node->int_value(); break;
      case Op::kVar: {
        OB_ASSIGN_OR_RETURN(value, ValueOfVar(node, bindings));
        break;
      }
      case Op::kWhere: value = source(source(0) != 0 ? 1 : 2); break;
      case Op::kMulAcc: break;  // of kernels
      case Op::kCast: value = FoldCast(node->src[0]->dtype, node->dtype, source(0)); break;
      default:
        value =
            FoldInt(node->op, node->src[0]->dtype, source(0), node->src.size() > 1 ? source(1) : 0);
    }
    if (!value)
      return absl::UnimplementedError(absl::StrCat("a dimension by ", std::string(Name(node->op))));
    values[node] = *value;
  }
  return values.at(scalar);
}

absl::StatusOr<std::vector<int64_t>> DimsAt(ShapeView shape, std::span<const Binding> bindings) {
  std::vector<int64_t> dims;
  for (const Dim& dim : shape) {
    if (dim.is_const()) {
      dims.push_back(dim.value());
    } else {
      OB_ASSIGN_OR_RETURN(dims.emplace_back(), ValueAt(dim.expression(), bindings));
    }
  }
  return dims;
}

const UOp* AtLargest(Graph& graph, const UOp* root) {
  absl::flat_hash_map<const UOp*, const UOp*> by;
  for (const UOp* node : PostOrder(root))
    if (node->op == Op::kVar) by[node] = ConstIndex(graph, VarOf(node).max());
  return by.empty() ? root : Substitute(graph, root, by);
}

}  // namespace outboard
