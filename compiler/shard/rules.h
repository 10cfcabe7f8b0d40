// How each operation of the tensor level behaves when its sources are cut: one table, two
// questions.
//
//   Forward   given how the sources lie, how does the result lie?
//   Demand    given how the result shall lie, how must the sources lie?
//
// For each operation and dimension the answer is one of: it passes through, it is summed (a reduced
// dimension that is cut gives a partial sum), it is needed whole. A partial sum passes through
// operations that are linear in it and do not make it larger, so that sums are added up on each
// device before devices add theirs. CALL, TUPLE, GETTUPLE and SINK are the planner's (plan.h).
// Threads: pure.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "compiler/ir/uop.h"
#include "compiler/shard/sharding.h"

namespace outboard::shard {

// What an operation does with its sources' shardings.
enum class DimFlow : uint8_t {
  kNone,         // no operation of values, or the planner's
  kLeaf,         // no sources, and one value: CONST, VAR, PARAM
  kIota,         // each device counts from its own offset
  kElementwise,  // all dimensions pass
  kReshape,      // the first dimension of each group that keeps its elements passes
  kPermute,      // all pass, in another order
  kExpand,       // those that are not expanded pass
  kWindow,       // PAD, SHRINK, FLIP: those that stay as they are pass
  kReduce,       // those that are not reduced pass; the others are summed
};
DimFlow FlowOf(Op op);

// How the own sources of a node lie, in their order.
using SourceShardings = absl::Span<const Sharding* const>;

// Returns how the result of `node` lies if its own sources lie as `sources` says, and nothing is
// moved that need not be.
Sharding Forward(const Mesh& mesh, const UOp* node, SourceShardings sources);

// Sets `wants` to how the own sources of `node` must lie so that it can be computed with its result
// at `out`; `sources` is how they lie. Returns false if it cannot be computed so.
bool Demand(const Mesh& mesh, const UOp* node, const Sharding& out,
            SourceShardings sources, std::vector<Sharding>& wants);

// Whether sums of this type are kept in f32 until they are whole, so that each is rounded once.
inline bool AddsInF32(DType dtype) { return IsFloat(dtype) && ByteWidth(dtype) <= 2; }

}  // namespace outboard::shard
