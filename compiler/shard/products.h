// Recognises sums of products by what their factors are: weights, and rows read by an index
// (compiler/ir/sums/gather.h). Used for estimates and guesses only; a wrong answer costs time and
// no value. Threads: pure.
#pragma once

#include <optional>

#include "compiler/ir/uop.h"
#include "compiler/shard/sharding.h"

namespace outboard::shard {

// The PARAM that a value is under a few movements and casts; nullptr if it is computed.
const UOp* ParamUnder(const UOp* node);

// What the product of a gather reads rows of, under movements and the comparison; nullptr at a node
// of another kind. In the same frame as `node`: never a body's.
const UOp* ValueUnder(const UOp* node);

// Whether the elements of `node` are the same along `dim`, by an EXPAND near it.
bool IsRepeated(const UOp* node, int dim);

// How to cut a product of something computed and weights, by `axes`, if neither is cut yet: along a
// dimension of the weights over which the other factor is repeated, so that each device needs its
// part of the weights alone. nullopt for anything else.
std::optional<Sharding> WeightsCut(const Mesh& mesh, const UOp* product, AxisSet axes);

}  // namespace outboard::shard
