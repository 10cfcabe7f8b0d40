// The simplifier: algebra that every pass may rely on and none has to do itself. It never fails: a
// graph that no rule fits comes back as it was.
#pragma once

#include "compiler/ir/uop.h"
#include "compiler/rewrite/rewriter.h"

namespace outboard {

// An equal graph in canonical form, where there is one. For tensor graphs, kernels, and single
// expressions of either; `root` need not be a SINK, and keeps its type and shape.
//
// What comes out, for integer scalars (index arithmetic) above all:
//   sums         terms in the order of CompareStructure, each once, the constant last; MUL by
//                constants distributed
//   quotients    by constants: what the divisor divides is split off, nested ones are joined,
//                x / c and x % c with x in [0, c) are gone, (x / c) * c + x % c is x
//   comparisons  decided by bounds where they can be; constants alone on one side; divided by what
//                divides all terms
//   casts        i64 of an i32 expression that cannot wrap is an i64 expression
// For all types: constants folded and on the right, also when they are broadcast; identities; AND
// and OR as sorted lists without duplicates; WHERE and gated LOAD with a known condition; movements
// merged. Floats change only where every bit stays (x + 0 is not x for -0, x * 0 is not 0 for NaN).
// THREEFRY stays, whatever it is applied to. Symbolic dimensions are left as they are spelled.
//
// Simplify(Simplify(x)) is Simplify(x). Deterministic: depends on what the graph says, not on
// addresses. Cost: O(nodes) look-ups, a microsecond or less each.
const UOp* Simplify(Graph& graph, const UOp* root, RewriteStats* stats = nullptr);

// The rules behind it, for passes that add their own.
const Matcher& SimplifyMatcher();

}  // namespace outboard
