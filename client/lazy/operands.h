// What an operation on two operands does with them first: numbers become scalars, both get one type
// and shape. Errors are thrown as error.h says, at the operand's line.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "client/lazy/node_builder.h"
#include "client/tensor/tensor.h"

namespace outboard::internal {

// The nodes of both, prepared.
struct Operands {
  const UOp* a = nullptr;
  const UOp* b = nullptr;
};

// The node of an operand. A number becomes a scalar of the type that it has beside `other`: of that
// type, or f32 where a fraction meets an integer. Throws where an integer type cannot hold it.
const UOp* NodeOfArg(const NodeBuilder& rec, const Arg& arg, DType other);

// Both operands promoted and broadcast to each other. `what` names the operation in errors.
Operands Promoted(const NodeBuilder& rec, const Arg& a, const Arg& b, std::string_view what);

// Promoted, without broadcasting.
Operands SameType(const NodeBuilder& rec, const Arg& a, const Arg& b, std::string_view what);

// sum(a * b) over `axes`, which stay: added up in a type wide enough, in the type of a and b or in
// `dtype` where it is given. Requires one type and shape of both.
const UOp* SumOfProducts(const NodeBuilder& rec, const UOp* a, const UOp* b,
                         const std::vector<int64_t>& axes, std::optional<DType> dtype = {});

// The order of a type turned around: for the smallest by the largest.
const UOp* Mirror(const NodeBuilder& rec, const UOp* x);

}  // namespace outboard::internal
