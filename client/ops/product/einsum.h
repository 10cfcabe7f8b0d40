// Sums of products over named axes.
//
// einsum("ij,jk->ik", {a, b}) sums the products of elements over every letter that is not on the
// right. A letter that stands twice in one operand takes its diagonal; "..." stands for axes that
// broadcast; without "->" the result has the letters that occur once, in the order of the alphabet.
// Types:  the operands promote; sums are those of Tensor::sum, so integers below 32 bits become 32.
// Cost:   operands are multiplied from the left to the right, and a letter is summed as soon as no
//         later operand has it.
// Errors: INVALID_ARGUMENT for a formula that does not fit the operands, and lengths of one letter
//         that differ; the message quotes the formula.
#pragma once

#include <string_view>
#include <vector>

#include "client/tensor/tensor.h"

namespace outboard {

Tensor einsum(std::string_view formula, const std::vector<Tensor>& operands, At at = At::current());

}  // namespace outboard
