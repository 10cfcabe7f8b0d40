// Prepares the operands of a binary operation: numbers become scalars, both get one dtype and
// shape. Errors are thrown as outboard::Error at the operand's line (client/tensor/error.h).
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "client/lazy/node_builder.h"
#include "client/tensor/tensor.h"

namespace outboard::internal {

// The prepared nodes of both.
struct Operands {
  const UOp* a = nullptr;
  const UOp* b = nullptr;
};

// Returns the node of an operand. A number becomes a scalar of the dtype of `other`, or f32 if a
// fraction meets an integer. Throws if an integer type cannot represent it.
const UOp* NodeOfArg(const NodeBuilder& build, const Arg& arg, DType other);

// Both operands promoted and broadcast to each other. `what` names the operation in errors.
Operands Promoted(const NodeBuilder& build, const Arg& a, const Arg& b, std::string_view what);

// As Promoted, but leaves u64 beside a signed integer as they are: what compares them can be exact.
Operands Comparable(const NodeBuilder& build, const Arg& a, const Arg& b, std::string_view what);

// Promotes without broadcasting.
Operands SameType(const NodeBuilder& build, const Arg& a, const Arg& b);

// Returns sum(a * b) over `axes`, which remain with length 1. Accumulates in a sufficiently wide
// dtype; the result has the dtype of a and b, or `dtype` if given. Requires the same dtype and
// shape of both.
const UOp* SumOfProducts(const NodeBuilder& build, const UOp* a, const UOp* b,
                         const std::vector<int64_t>& axes, std::optional<DType> dtype = {});

// Reverses the order of a dtype's values: computes a minimum by a maximum.
const UOp* Mirror(const NodeBuilder& build, const UOp* x);

}  // namespace outboard::internal
