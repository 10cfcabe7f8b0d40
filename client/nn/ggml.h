// Arrays of GGML's element types as tensors: the packed bytes are sent, and tensor operations
// expand them in the cloud when something needs the elements.
//
// Formulas: a block of each type as GGML's reference functions read it (ggml-quants.c,
// dequantize_row_*), in f32 and in their order of operations, so that results are the same bits.
// Threads: as Tensors.
#pragma once

#include "client/files/ggml_type.h"
#include "client/tensor/tensor.h"

namespace outboard::nn {

// Returns the elements of `blocks`: u8 [count, block_bytes] -> f32 [count * block_elements] (f16
// for Q1_0, whose elements consist of their scale only); for a plain type u8 [count, width] ->
// [count] of that type. Throws Error: INVALID_ARGUMENT  another shape or type
Tensor dequantize(const Tensor& blocks, files::GgmlType type, At at = At::current());

}  // namespace outboard::nn
