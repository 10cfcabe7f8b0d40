// Decodes little-endian numbers: reads u8 tensors as a wider type, in the cloud.
//
// Shapes: [..., n * w] -> [..., n] for a type of w bytes. A bool is true unless it is 0.
// Errors, thrown as Error: INVALID_ARGUMENT for a tensor that is not u8 or whose last axis is not a
// multiple of w.
#pragma once

#include "client/tensor/tensor.h"

namespace outboard::nn {

Tensor FromLittleEndian(const Tensor& bytes, DType dtype, At at = At::current());

}  // namespace outboard::nn
