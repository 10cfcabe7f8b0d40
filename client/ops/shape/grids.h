// Grids, repetitions and sliding windows over tensors.
//
// They only move elements, of every type; the gradient of what is read several times adds up.
// Errors: INVALID_ARGUMENT where ranks, axes and sizes are not as below.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "client/tensor/tensor.h"

namespace outboard {

// Takes k tensors with one axis (a scalar counts as length 1); returns k tensors whose shape is all
// their lengths: in result i the elements of tensor i run along axis i. "xy" exchanges the first
// two axes.
std::vector<Tensor> meshgrid(const std::vector<Tensor>& parts, std::string_view indexing = "ij",
                             At at = At::current());

// Repeats each element `times` times in a row, along `axis`; or in the flattened tensor.
Tensor repeat_interleave(const Tensor& x, int64_t times, std::optional<int64_t> axis = {},
                         At at = At::current());

// Returns windows of `size` elements, the first at 0, the next `step` further, as many as fit:
// `axis` has one position per window, and a last axis of length `size` is added.
Tensor unfold(const Tensor& x, int64_t axis, int64_t size, int64_t step, At at = At::current());

}  // namespace outboard
