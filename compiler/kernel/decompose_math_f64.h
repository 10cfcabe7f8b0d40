// Decomposes EXP, EXP2, LOG, LOG2, SIN, COS and TANH of f64 into arithmetic: for GPUs, which have
// no C library, and for processors, whose library takes one number after the other.
//
// Within 2 units in the last place of the exact value, as f32, where docs/semantics.md allows 4;
// tests/compiler/transcendental_ulp_test.cc measures it and found at most 1.6 (of LOG). Methods and
// sources are those of decompose_math.h, with longer series. SIN and COS subtract multiples of
// three parts of pi / 2 up to angles of 2^30, and multiply larger ones by 192 bits of 2 / pi, in
// integers; either way they keep what their angle lacks as a second number. Both ways are written
// out, the long one for WHEREs of one condition, so that a program can skip it
// (program/passes/rare_work.cc).
//
// A processor without FMA calls the C library's for each number, which is right and slow.
#pragma once

#include "compiler/ir/uop.h"

namespace outboard::codegen {

// Returns the same kernel without transcendental operations of f64: `sink` itself, which may be of
// another graph, where it has none. Nodes: about 40 for an exponential or a logarithm, 60 for TANH,
// 300 for SIN or COS. Cost: O(nodes).
const UOp* DecomposeTranscendentalsOfF64(Graph& graph, const UOp* sink);

}  // namespace outboard::codegen
