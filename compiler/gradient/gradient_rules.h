// The derivative of each operation, as a table. The walk that uses it is gradient.cc.
//
// Each rule is one step of reverse accumulation (Griewank and Walther, "Evaluating Derivatives",
// 2nd edition, 2008, chapter 3): from dy, the derivative of the result with respect to y = f(x0, x1
// ...), to dy * df/dxi for each source. The conventions at corners are those of gradient.h.
#pragma once

#include <optional>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "compiler/ir/uop.h"

namespace outboard::gradient {

// The nodes that one step of a rule may make, dimensions included: the walk checks beforehand that
// the graph can take that many more.
inline constexpr int64_t kNodesPerStepMax = 8192;

// One node of the reverse walk: the gradient that reached it, and the gradients that its rule
// computes for its sources.
struct Step {
  Graph& g;
  const UOp* node;
  const UOp* dy;
  absl::InlinedVector<bool, 4> needs;        // which sources want a gradient
  absl::InlinedVector<const UOp*, 4> gives;  // nullptr: none

  const UOp* x(int i = 0) const { return node->src[i]; }
};

using Rule = absl::Status (*)(Step&);

// Returns the rule of an operation with one value; nullptr if no gradient flows back. The walk
// itself handles CALL, TUPLE and GETTUPLE.
Rule RuleOf(Op op);

// Several nodes that are one function together, whose derivative is known where the product of
// theirs is 0 times infinity: x ** y where x is 0, a logistic function far from 0.
struct Composite {
  const UOp* node;                                  // its value
  absl::InlinedVector<const UOp*, 2> arguments;     // of the function
  absl::InlinedVector<const UOp*, 4> inner;         // nodes between these and `node`
  absl::Status (*rule)(Step& s, const Composite&);  // `needs` and `gives` of s: by `arguments`
};

// Returns the function whose value `node` is; nullopt if its operation stands for itself.
std::optional<Composite> CompositeOf(const UOp* node);

}  // namespace outboard::gradient
