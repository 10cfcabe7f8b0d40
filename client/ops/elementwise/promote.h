// Which type an operation on two types has, and what sums of one are kept in.
// Pure. Other pairs than those named here have none, which callers tell their user.
#pragma once

#include <optional>

#include "compiler/ir/dtype.h"

namespace outboard {

// The smallest type that holds both: bool < integers < floats; f16 with bf16 is f32. nullopt where
// there is none: u64 with a signed integer.
std::optional<DType> Promote(DType a, DType b);

// What a sum of `dtype` is kept in: bool and small integers in 32 bits, floats in their own type.
DType SumType(DType dtype);
// What floats of less than 32 bits are added up in: f32. Other types: themselves.
DType AccumulateType(DType dtype);
// `dtype` if it is a float, else f32: for exp, mean, a / b.
DType FloatOf(DType dtype);

}  // namespace outboard
