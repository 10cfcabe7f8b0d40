// Type promotion: the result type of an operation on two types, and the accumulator type of sums.
// Pure functions of their arguments and of DefaultFloat. Errors: none.
#pragma once

#include "compiler/ir/dtype.h"

namespace outboard {

// Returns the smallest type that holds both: bool < integers < floats; f16 with bf16 is f32.
// DefaultFloat for u64 with a signed integer, which no integer type holds both, as in tinygrad.
DType Promote(DType a, DType b);
// True for u64 with a signed integer.
bool HaveNoIntegerType(DType a, DType b);

// Returns the result type of a sum of `dtype`: bool and small integers 32 bits, floats their own
// type.
DType SumType(DType dtype);
// Returns the accumulator type: f32 for floats of less than 32 bits; other types: themselves.
DType AccumulateType(DType dtype);
// `dtype` if it is a float, else DefaultFloat(): for exp, mean, a / b.
DType FloatOf(DType dtype);

// What floats of the program, and integers that become floats, are in tensors: f32 unless set.
// Of the process; safe to call from any thread. An operation takes it when it is recorded.
DType DefaultFloat();
void SetDefaultFloat(DType dtype);

}  // namespace outboard
