// The expression of a symbolic SymInt: an immutable tree that copies share. Used by the library and
// by bindings for other languages.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "client/tensor/variable.h"
#include "compiler/ir/op.h"
#include "compiler/ir/uop.h"

namespace outboard::internal {

// A variable, or an operation on two sizes: kAdd, kMul, kIDiv or kMod.
struct SymExpression {
  std::optional<BoundVariable> variable;
  Op op = Op::kAdd;
  SymInt a, b;
};

// Returns `size` as a dimension, whose nodes are made in `graph`; `var_of` gives the VAR of a
// variable.
// Errors: INVALID_ARGUMENT    numbers whose sum does not fit 64 bits
//         RESOURCE_EXHAUSTED  as Graph::Make
//         those of `var_of`
absl::StatusOr<Dim> DimIn(
    Graph& graph, const SymInt& size,
    const std::function<absl::StatusOr<const UOp*>(const BoundVariable&)>& var_of);

// The variables of `size`, in the order in which they stand there, each as often as it does.
std::vector<BoundVariable> VariablesIn(const SymInt& size);

// The same expression with the values of `bound`, where it has one for a variable.
SymInt Rebound(const SymInt& size, std::span<const BoundVariable> bound);

// Whether both are the same expression of the same variables and numbers, whatever their values.
bool SameForm(const SymInt& a, const SymInt& b);

}  // namespace outboard::internal
