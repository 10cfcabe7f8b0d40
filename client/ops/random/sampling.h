// Draws samples from given elements, with the generator of random.h.
//
// Shapes: weights [n] or [rows, n] -> [samples] or [rows, samples], of i32. Errors:
// INVALID_ARGUMENT for another rank, no samples, and more of them than there are elements without
// replacement. Threads: as tensor.h.
#pragma once

#include "client/tensor/tensor.h"

namespace outboard {

// 0 ... n - 1 in random order.
Tensor randperm(int64_t n, DType dtype = DType::kI32, At at = At::current());
// Returns indices of `weights`, each with the probability of its share of the sum; without
// replacement no index occurs twice (Efraimidis and Spirakis, 2006).
Tensor multinomial(const Tensor& weights, int64_t samples = 1, bool replacement = false,
                   At at = At::current());

}  // namespace outboard
