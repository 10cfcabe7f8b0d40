// Functions of one float that consist of several operations; integers become f32.
//
// Shapes: any; the result has the operand's. f32 and f64 are computed in their own type, narrower
// floats in f32 and rounded once. Error bounds: docs/semantics.md. NaN outside of the domain.
// Polynomials are Chebyshev interpolations of the approximated functions, made for this file.
// Errors and threads: as tensor.h.
#pragma once

#include "client/tensor/tensor.h"

namespace outboard {

Tensor log10(const Tensor& x, At at = At::current());
Tensor asin(const Tensor& x, At at = At::current());
Tensor acos(const Tensor& x, At at = At::current());
Tensor atan(const Tensor& x, At at = At::current());
Tensor sinh(const Tensor& x, At at = At::current());
Tensor cosh(const Tensor& x, At at = At::current());
Tensor asinh(const Tensor& x, At at = At::current());
Tensor acosh(const Tensor& x, At at = At::current());
Tensor atanh(const Tensor& x, At at = At::current());
// 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.
Tensor erf(const Tensor& x, At at = At::current());

}  // namespace outboard
