// Decomposes EXP, EXP2, LOG, LOG2, SIN, COS and TANH into arithmetic: the additions,
// multiplications and bit operations of an approximation. The rest of code generation then needs
// only plain arithmetic, and vectorises and unrolls these functions like any other.
//
// f32: within 2 units in the last place of the exact value for every float, subnormal results
// included; tests/compiler/transcendental_ulp_test.cc measures it (all of them with
// OUTBOARD_ULP_STEP=1). Smaller floats are computed in f32 and rounded once. f64 is
// left as it is: decompose_math_f64.h comes before, but on OpenCL devices.
//
// Sources: range reduction by two constants as in Cody and Waite, "Software Manual for the
// Elementary Functions", 1980; SIN and COS of large numbers after Payne and Hanek, "Radian
// reduction for trigonometric functions", 1983; the sum in LOG as in Sun's fdlibm. Polynomials are
// the functions' own series, cut where the next term is below a tenth of a unit.
//
// EXP, EXP2 and TANH of bf16 and f16 may be the unit's of an NVIDIA GPU (docs/decisions/216-
// epilogues.md): within 2^-17 of themselves before they are rounded. With u' = 2^-24: x log2 e is
// rounded twice, its constant by u' / 4, and is 134 at most where 2^x is a number, so that 2^x is
// off by 134 (5/4) u' ln 2 < 117 u'; the unit's own 2^-22, twice for subnormal numbers, makes that
// less than 126 u' < 2^-17. A power below 2^-127 is rounded to a multiple of 2^-149 besides: it is
// within 2^-17 of itself and 2^-150. TANH is x less at most 0.12 x, without an exponential, or
// 1 - 2 / (e + 1) with e of 3.49 and more, which takes in at most 0.82 of the error of e.
#pragma once

#include <vector>

#include "compiler/ir/uop.h"

namespace outboard::codegen {

// Returns the same kernel without transcendental operations of types other than f64. Nodes: about
// 20 for an exponential, 30 for a logarithm, 40 for TANH, 70 for SIN or COS. Cost: O(nodes).
const UOp* DecomposeTranscendentals(Graph& graph, const UOp* sink);

// Returns the same kernel with EXP, EXP2 and TANH of bf16 and f16 by EXP2 of f32 by the unit of an
// NVIDIA GPU (ir/op.h), which DecomposeTranscendentals leaves. In `graph`, unless there are none.
const UOp* DecomposeByUnit(Graph& graph, const UOp* sink);

// Returns the last of `nodes`, which are in post-order, as a node of `graph`, with all of them: the
// numbers of nodes (UOp::index) order them within one graph alone.
const UOp* CopiedTo(Graph& graph, const std::vector<const UOp*>& nodes);

}  // namespace outboard::codegen
