// Exponentials of online kernels (plan.h), as the unit of an NVIDIA GPU computes them: exp(x - m),
// with m the maximum of x over the steps and x a constant c times y, 0 < c <= 1, is
//
//   2^((y - max y) * (c log2 e))
//
// Neither x nor its maximum is computed for it, and the power of two is one instruction. Its error
// grows with the distance from the maximum, as the terms shrink (docs/semantics.md, REDUCE). A
// product y * c log2 e that is not rounded before max y * c log2 e is subtracted would save one
// more instruction, but is off by as much as max y loses, which is not small where masks are large
// finite numbers.
#pragma once

#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/kernel/loop_nest.h"

namespace outboard::program {

// One exponential. y is `value`, but -infinity where a condition of `hidden` is what stands beside
// it: those that are first win.
struct UnitExponential {
  const UOp* max = nullptr;  // of x
  const UOp* value = nullptr;
  double factor = 1;  // c
  std::vector<std::pair<const UOp*, bool>> hidden;
};

// Returns all exponentials of f32 whose maximum over `range` is subtracted, by their nodes.
absl::flat_hash_map<const UOp*, UnitExponential> UnitExponentialsOf(const codegen::LoopNest& kernel,
                                                                    int range);

}  // namespace outboard::program
