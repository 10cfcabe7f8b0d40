// Grids and repetitions: tensors that are spread, and windows over them.
//
// They only move elements, of every type; the gradient of what is read several times adds up.
// Errors: INVALID_ARGUMENT where ranks, axes and sizes are not as below.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "client/tensor/tensor.h"

namespace outboard {

// Of k tensors with one axis (or none, then of length 1), k tensors of all their lengths: in part i
// the elements of tensor i run along axis i. "xy" exchanges the first two axes.
std::vector<Tensor> meshgrid(const std::vector<Tensor>& parts, std::string_view indexing = "ij",
                             At at = At::current());

// Each element `times` times in a row, along `axis`; or of the flattened tensor.
Tensor repeat_interleave(const Tensor& x, int64_t times, std::optional<int64_t> axis = {},
                         At at = At::current());

// Windows of `size` elements, the first at 0, the next `step` further, as far as they fit: `axis`
// has one place for each, and a last axis of `size` is new.
Tensor unfold(const Tensor& x, int64_t axis, int64_t size, int64_t step, At at = At::current());

}  // namespace outboard
