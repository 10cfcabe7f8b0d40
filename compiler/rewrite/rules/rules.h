// The tables of the simplifier. Every rule preserves the value of its root for every input, as
// defined by docs/semantics.md: exactly for integers, which wrap, and bit for bit (NaN payloads
// aside) for floats.
#pragma once

#include <span>

#include "compiler/rewrite/pattern.h"

namespace outboard::rules {

// Elementwise arithmetic of constants and trivial operands, casts: value.cc.
std::span<const Rule> Value();
// Integer sums in one order, like terms collected: sum.cc.
std::span<const Rule> Sum();
// Integer division and remainder by constants: division.cc.
std::span<const Rule> Division();
// Comparisons of integers: compare.cc.
std::span<const Rule> Compare();
// Conditions, WHERE and gated loads: logic.cc.
std::span<const Rule> Logic();
// Movements and reductions: tensor.cc.
std::span<const Rule> Tensor();

}  // namespace outboard::rules
