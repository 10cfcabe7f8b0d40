// Writes collectives as transfers and folds.
//
// A transfer only moves bytes (runtime/collective/), so blocks lie one after the other: dimension 0
// of what it sends or receives is the place in the group. What is left is arithmetic and movement,
// which kernels do, so the bits of a fold are those of its kernel, whatever moves the bytes:
//
//   UNSHARD dim d         all-gather of [1, ...] to [n, ...], whose dimension 0 moves before d
//   ALLTOALL cut a join b the n parts along a to the front, exchange, the front before b
//   REDUCE_SCATTER dim d  the n parts along d to the front, exchange, fold of the n rows
//   ALLREDUCE             of few bytes, of two ranks, or with dimensions of VARs: all-gather, fold
//                         of the n rows; else an exchange of n parts, fold, all-gather of the parts
//   COPY                  itself
//
// A fold is ((x0 op x1) op x2) ... in the order of the group, each step rounded to the type;
// floats of 16 bits and fewer are folded in f32 and rounded once.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"

namespace outboard::schedule {

// Returns `sink` with every collective in one of three forms: UNSHARD of dimension 0, of length 1;
// ALLTOALL from dimension 0 to dimension 0, of length n; COPY. Groups of one rank, and values
// without elements, need none. Requires a prepared graph (prepare.h).
// Errors: RESOURCE_EXHAUSTED  a limit of the graph
absl::StatusOr<const UOp*> LowerCollectives(Graph& graph, const UOp* sink);

}  // namespace outboard::schedule
