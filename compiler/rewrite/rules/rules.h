// The tables of the simplifier. Every rule keeps the value of its root for every input, by
// docs/semantics.md: exactly for integers, which wrap, and bit for bit (NaN payloads aside) for
// floats.
#pragma once

#include <span>

#include "compiler/rewrite/pattern.h"

namespace outboard::rules {

// Elementwise arithmetic of constants and trivial operands, casts: rules_value.cc.
std::span<const Rule> Value();
// Integer sums in one order, like terms collected: rules_sum.cc.
std::span<const Rule> Sum();
// Integer division and remainder by constants: rules_division.cc.
std::span<const Rule> Division();
// Comparisons of integers: rules_compare.cc.
std::span<const Rule> Compare();
// Conditions, WHERE and gated loads: rules_logic.cc.
std::span<const Rule> Logic();
// Movements and reductions: rules_tensor.cc.
std::span<const Rule> Tensor();

}  // namespace outboard::rules
