// The rules of legal nodes and graphs. CheckNode holds for every node ever made; VerifyGraph adds
// the rules about whole graphs and is the check that every graph from the wire must pass first.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"

namespace outboard {

// The type of a node's elements, and its shape.
struct Inferred {
  DType dtype = DType::kVoid;
  Shape shape;
};

// Returns the dtype and shape of a node over `src`, which belong to `graph`. May make nodes there:
// expressions of dimensions. Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED as Graph::Make.
absl::StatusOr<Inferred> CheckNode(Graph& graph, Op op, DType dtype, Sources src,
                                   absl::Span<const int64_t> arg);

// Checks that the graph under `root` is a whole program of `level`: the root is a SINK, every
// operation is legal at the level, no BUFFER, a SINK only at the root, each slot has one PARAM and
// each VAR one range, and outer PARAM slots are 0, 1, 2 ... in the order of first use. Errors:
// INVALID_ARGUMENT naming the node (its place in PostOrder) and the rule. A graph of kTensor, which
// is what clients send, has no collective and no rank; one of kDevice may.
absl::Status VerifyGraph(const UOp* root, Level level);

// Returns the PARAMs that `root` reads outside of any FUNCTION, by slot. Requires a verified graph.
std::vector<const UOp*> ParamsOf(const UOp* root);
// Returns the VARs that `root` reads anywhere, in the order of their slots. Requires a verified
// graph.
std::vector<const UOp*> VarsOf(const UOp* root);

}  // namespace outboard
