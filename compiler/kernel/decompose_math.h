// EXP, EXP2, LOG, LOG2, SIN, COS and TANH as arithmetic: rules that write each as the additions,
// multiplications and bit operations of its approximation, so that the rest of code generation
// knows one kind of arithmetic, and lanes and unrolling come of themselves.
//
// f32: within 2 units in the last place of the exact value for every float, subnormal results
// included; transcendental_ulp_test measures it (all of them with OUTBOARD_ULP_STEP=1). Smaller
// floats are computed in f32 and rounded once. f64 is left to the C library, an element at a time.
//
// Sources: range reduction by two constants as in Cody and Waite, "Software Manual for the
// Elementary Functions", 1980; SIN and COS of large numbers after Payne and Hanek, "Radian
// reduction for trigonometric functions", 1983; the sum in LOG as in Sun's fdlibm. Polynomials are
// the functions' own series, cut where the next term is below a tenth of a unit.
#pragma once

#include "compiler/ir/uop.h"

namespace outboard::codegen {

// The same kernel without transcendental operations of types other than f64. Nodes: about 20 for
// an exponential, 30 for a logarithm, 40 for TANH, 70 for SIN or COS. Cost: O(nodes).
const UOp* DecomposeTranscendentals(Graph& graph, const UOp* sink);

}  // namespace outboard::codegen
