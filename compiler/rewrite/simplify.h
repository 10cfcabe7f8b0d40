// The simplifier: algebra that every pass may rely on and none has to do itself. It never fails: a
// graph to which no rule applies is returned unchanged.
#pragma once

#include "compiler/ir/uop.h"
#include "compiler/rewrite/rewriter.h"

namespace outboard {

// Returns an equal graph, in canonical form where one is defined. For tensor graphs, kernels, and
// single expressions of either; `root` need not be a SINK, and its type and shape do not change.
//
// The canonical form, mainly for integer scalars (index arithmetic):
//   sums         terms in the order of CompareStructure, each once, the constant last; MUL by
//                constants distributed
//   quotients    by constants: what the divisor divides is split off, nested ones are joined,
//                x / c and x % c with x in [0, c) are gone, (x / c) * c + x % c is x
//   comparisons  decided by bounds where they can be; constants alone on one side; divided by what
//                divides all terms
//   casts        i64 of an i32 expression that cannot wrap is an i64 expression
// For all types: constants folded and on the right, also when they are broadcast; identities; AND
// and OR as sorted lists without duplicates; WHERE and gated LOAD with a known condition; movements
// merged. Floats are rewritten only if every bit of the result stays the same (x + 0 is not x for
// -0, x * 0 is not 0 for NaN). THREEFRY is never folded. Symbolic dimensions are left unchanged.
//
// Simplify(Simplify(x)) is Simplify(x). Deterministic: depends on the structure of the graph, not
// on addresses. Cost: O(nodes) look-ups, a microsecond or less each.
const UOp* Simplify(Graph& graph, const UOp* root, RewriteStats* stats = nullptr);

// The rules that Simplify applies, for passes that add their own.
const Matcher& SimplifyMatcher();

}  // namespace outboard
