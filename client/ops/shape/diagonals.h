// Makes and reads diagonals of matrices. For the elements on one side of them see Tensor::triu and
// tril.
//
// Gradient: to the places that were taken; they only move elements, of every type.
// Errors:   INVALID_ARGUMENT where ranks and axes are not as below.
#pragma once

#include "client/tensor/tensor.h"

namespace outboard {

// [n] -> [n, n], zeros beside the diagonal.
Tensor diag(const Tensor& x, At at = At::current());

// Returns x without the axes a and b, and with their diagonal as the last axis: the elements x[..,
// i, .., i + offset, ..]. Empty if the offset is outside of the matrix.
Tensor diagonal(const Tensor& x, int64_t offset = 0, int64_t a = 0, int64_t b = 1,
                At at = At::current());

}  // namespace outboard
