// Splits, reorders and merges axes by name.
//
// rearrange(x, "batch (rows width) -> rows batch width", {{"width", 4}}) is a reshape, a permute
// and a reshape, in the notation of einops. "..." stands for the axes that have no name, "1" and
// "()" for one of length 1. In each parenthesis on the left one length may be left open.
// Errors: INVALID_ARGUMENT for names that are not the same on both sides, parentheses that do not
//         match, lengths that do not come out even; the message quotes the formula.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "client/tensor/tensor.h"

namespace outboard {

Tensor rearrange(const Tensor& x, std::string_view formula,
                 const std::map<std::string, int64_t>& sizes = {}, At at = At::current());

}  // namespace outboard
