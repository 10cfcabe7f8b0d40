// Diagonals of matrices. See Tensor::triu and tril for what is on one side of them.
//
// Gradient: to the places that were taken; they only move elements, of every type.
// Errors:   INVALID_ARGUMENT where ranks and axes are not as below.
#pragma once

#include "client/tensor/tensor.h"

namespace outboard {

// [n] -> [n, n], zeros beside the diagonal.
Tensor diag(const Tensor& x, At at = At::current());

// x without the axes a and b, and their diagonal as the last axis: the elements x[.., i, .., i +
// offset, ..]. Empty where the offset leaves the matrix.
Tensor diagonal(const Tensor& x, int64_t offset = 0, int64_t a = 0, int64_t b = 1,
                At at = At::current());

}  // namespace outboard
