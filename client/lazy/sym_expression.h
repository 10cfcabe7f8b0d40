// What a SymInt that is not a number is made of: a tree that SymShape share and nobody changes.
// For the library and for what drives it from another language.
#pragma once

#include <optional>

#include "client/tensor/variable.h"
#include "compiler/ir/op.h"

namespace outboard::internal {

// A variable, or an operation of two sizes: kAdd, kMul, kIDiv or kMod.
struct SymExpression {
  std::optional<BoundVariable> variable;
  Op op = Op::kAdd;
  SymInt a, b;
};

}  // namespace outboard::internal
