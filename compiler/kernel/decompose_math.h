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
#pragma once

#include "compiler/ir/uop.h"

namespace outboard::codegen {

// Returns the same kernel without transcendental operations of types other than f64. Nodes: about
// 20 for an exponential, 30 for a logarithm, 40 for TANH, 70 for SIN or COS. Cost: O(nodes).
const UOp* DecomposeTranscendentals(Graph& graph, const UOp* sink);

}  // namespace outboard::codegen
