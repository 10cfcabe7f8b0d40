// Gradients, by rewriting: a tensor graph in, a tensor graph out. Nothing is recorded while a graph
// is built, and since the result is a graph again, gradients of gradients need no extra mechanism.
//
// Conventions where a function has a corner:
//   MAX(x, constant)   the gradient goes to x where x > constant, so relu has gradient 0 at 0
//   MAX(a, b)          equal values get half each
//   REDUCE MAX         the places that hold the largest value share the gradient evenly; none if
//                      that is NaN
//   REDUCE MUL         exact, also where factors are 0, and to any order
//   SQRT, LOG2, FDIV   what the formula gives, so SQRT at 0 has an infinite one
//   EXP2(b LOG2(a))    of a ** b: b a ** (b - 1), and a ** b times log a, which is 0 where a ** b
//                      is, so both exist where a is 0 or infinite
//   e / (1 + e)        and 1 / (1 + e), of e = EXP(x): 0 far from 0, also where e is infinite
//   WHERE              the branch not taken gets 0, whatever its own value is; what it is made of
//                      is still computed, and
//                      0 times an infinite derivative is NaN: guard the argument, not only the
//                      result
//   TRUNC, DETACH, comparisons and everything of integers or bool have none
//   ASSIGN(old, new)   is `new`; `old` gets none
// CALL: the gradient of a CALL is a CALL of a gradient FUNCTION, which takes the arguments and then
// the gradients of the results. One is made for each (FUNCTION, arguments that need one, results
// that have one), so that twelve calls of one layer share one gradient body.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/uop.h"

namespace outboard {

// Returns, for each node of `wrt`, the gradient of sum(y * dy) with respect to it: of its type and
// shape, and zero if `y` does not depend on it.
//
//   y    of a float type
//   dy   of the type and shape of `y`; nullptr is 1 and needs a `y` of one element
//   wrt  of float types; any nodes, inputs or not. Dependence goes through a node of `wrt` to
//   others beneath it.
//
// Where a node has several users their contributions are added in one fixed order, so the result is
// the same graph in every process.
// Errors: INVALID_ARGUMENT    a rule above is broken; `dy` and `y` differ in type or shape
//         UNIMPLEMENTED       between `wrt` and `y` is a BITCAST between floats, more than one
//                             device, or a REDUCE MUL over a symbolic axis
//         RESOURCE_EXHAUSTED  a limit of limits.h
// Cost: O(nodes between `wrt` and `y`). Threads: those of `g`.
absl::StatusOr<std::vector<const UOp*>> Gradient(Graph& g, const UOp* y, const UOp* dy,
                                                 absl::Span<const UOp* const> wrt);

}  // namespace outboard
