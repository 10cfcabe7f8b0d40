// Constants in graphs of tensors: behind movements each is one scalar.
// Rules of gradients ask for them.
#pragma once

#include "compiler/ir/uop.h"

namespace outboard::gradient {

// The scalar of a node that has the same value everywhere, else nullptr.
inline const UOp* UniformConst(const UOp* node) {
  while (node->op == Op::kReshape || node->op == Op::kExpand || node->op == Op::kPermute)
    node = node->src[0];
  return node->is_const() ? node : nullptr;
}

inline bool IsFloatConst(const UOp* node, double value) {
  const UOp* const scalar = UniformConst(node);
  return scalar != nullptr && IsFloat(scalar->dtype) && scalar->float_value() == value;
}

}  // namespace outboard::gradient
