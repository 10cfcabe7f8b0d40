// The expression of a symbolic SymInt: an immutable tree that copies share. Used by the library and
// by bindings for other languages.
#pragma once

#include <optional>

#include "client/tensor/variable.h"
#include "compiler/ir/op.h"

namespace outboard::internal {

// A variable, or an operation on two sizes: kAdd, kMul, kIDiv or kMod.
struct SymExpression {
  std::optional<BoundVariable> variable;
  Op op = Op::kAdd;
  SymInt a, b;
};

}  // namespace outboard::internal
