// Numbers from their bytes, as files have them: tensors of u8 read as a wider type, computed where
// the bytes live.
//
// Shapes: [..., n * w] -> [..., n] for a type of w bytes. Errors, thrown as Error: INVALID_ARGUMENT
// bytes that are not of u8, or whose last axis is no multiple of w. A bool is whatever is not 0.
#pragma once

#include "client/tensor/tensor.h"

namespace outboard::nn {

Tensor FromLittleEndian(const Tensor& bytes, DType dtype, At at = At::current());

}  // namespace outboard::nn
