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
//
// Gradients have exp(x - t), with t loaded: the maximum that the forward kernel stored. It is of x
// itself, so that x is computed, with its own rounding: 2^((x - t) log2 e). Where c is a power of
// two c y has none, and c y - t is one instruction.
#pragma once

#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/kernel/loop_nest.h"

namespace outboard::program {

// One exponential. y is `value`, but -infinity where a condition of `hidden` is what stands beside
// it: those that are first win.
struct UnitExponential {
  const UOp* max = nullptr;  // of x; or the LOAD t, where `loaded`
  const UOp* value = nullptr;
  double factor = 1;  // c
  std::vector<std::pair<const UOp*, bool>> hidden;
  bool loaded = false;
};

// Returns all exponentials of f32 whose maximum over `range` is subtracted, by their nodes.
absl::flat_hash_map<const UOp*, UnitExponential> UnitExponentialsOf(const codegen::LoopNest& kernel,
                                                                    int range);

// Returns those that subtract a LOAD of one value for each row, or for each step, from what is
// computed from scores: reductions inside of the loop over `range`, the steps.
absl::flat_hash_map<const UOp*, UnitExponential> LoadedExponentialsOf(
    const codegen::LoopNest& kernel, int range);

// Returns, where there are such exponentials, the quotients of what is computed from scores by
// another LOAD of that kind, the sum that the forward kernel stored: each is a product with the
// divisor's inverse, which the unit computes. Not those that an exponent of `loaded` is made of:
// the maximum is of the rounded quotients.
absl::flat_hash_set<const UOp*> LoadedQuotientsOf(
    const codegen::LoopNest& kernel, int range,
    const absl::flat_hash_map<const UOp*, UnitExponential>& loaded);

}  // namespace outboard::program
