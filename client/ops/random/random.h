// Random tensors beside those of Tensor itself (rand, randn, uniform, randint, kaiming_uniform):
// the same on every backend, in the order of the calls, from the generator that Tensor::manual_seed
// starts (docs/semantics.md).
//
// Errors: INVALID_ARGUMENT for types that are no floats, ranges and counts that are empty. Threads:
// as tensor.h.
#pragma once

#include "client/tensor/tensor.h"

namespace outboard {

// low <= value < high, of an integer type that has these numbers; at most 2^32 of them.
Tensor randint(const Dims& dims, int64_t low, int64_t high, DType dtype, At at = At::current());
// Of the normal distribution around `mean`.
Tensor normal(const Dims& dims, double mean = 0, double std = 1, DType dtype = DType::kF32,
              At at = At::current());
// Uniform within 1 / sqrt(number of elements).
Tensor scaled_uniform(const Dims& dims, DType dtype = DType::kF32, At at = At::current());
// Uniform within sqrt(6 / (first dimension + product of the others)).
Tensor glorot_uniform(const Dims& dims, DType dtype = DType::kF32, At at = At::current());
// Normal, as wide as sqrt(2 / ((1 + a^2) * fan_in)); fan_in is the product of all but the first
// dimension.
Tensor kaiming_normal(const Dims& dims, double a = 0.01, DType dtype = DType::kF32,
                      At at = At::current());

// Draws samples from given elements, with the same generator.
//
// Shapes: weights [n] or [rows, n] -> [samples] or [rows, samples], of i32. Errors:
// INVALID_ARGUMENT for another rank, no samples, and more of them than there are elements without
// replacement. Threads: as tensor.h.

// 0 ... n - 1 in random order.
Tensor randperm(int64_t n, DType dtype = DType::kI32, At at = At::current());
// Returns indices of `weights`, each with the probability of its share of the sum; without
// replacement no index occurs twice (Efraimidis and Spirakis, 2006).
Tensor multinomial(const Tensor& weights, int64_t samples = 1, bool replacement = false,
                   At at = At::current());

}  // namespace outboard
