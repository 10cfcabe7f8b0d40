// Resizing: the last axes of a tensor brought to another length by interpolation.
//
//   x [..., D...] -> [..., size...]
//
// linear: between the two nearest elements of each axis, where element i of n covers the stretch
// from i / n to (i + 1) / n, or with align_corners lies at i / (n - 1). nearest: the element that
// floor(i * D / size) names; nearest_exact: the one that the middle of i falls into.
//
// The result has the type of x: between integers is rounded towards zero, but for u8, which is
// mostly pictures, to the nearest.
// Errors: INVALID_ARGUMENT for a size of no axes, of more than x has, or below 1, and align_corners
// with another mode than linear.
// Threads: as Tensor.
#pragma once

#include "client/tensor/tensor.h"

namespace outboard {

// What a place between two elements takes: of both by distance, the one below as PyTorch's
// "nearest" rounds, or the nearest one.
enum class Interpolation { kLinear, kNearest, kNearestExact };

Tensor interpolate(const Tensor& x, const Dims& size, Interpolation mode = Interpolation::kLinear,
                   bool align_corners = false, At at = At::current());

}  // namespace outboard
