// Sums over a part of an output loop, stored beside what the kernel computes for each point:
//
//   STORE (INDEX (P, row / 16 * n + column), value) 1        P: [rows / 16, n] of f32
//
// Such a store of sums (ir/op.h) is the first of two steps of a sum over the rows of a matrix that
// the kernel computes: the gradient of a bias is one. Products of matrices by a GPU's matrix units
// add the rows where they are (program/mma/row_sums.h). Every other lowering has the same kernel
// without such stores: WithoutRowSums writes their values as reductions, which compute what they
// add again.
//
// The number of a row is that of one output range or, dense, of several. No other range is divided,
// and different blocks of rows have different elements. All of this is checked.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"

namespace outboard::codegen {

bool HasRowSums(const UOp* sink);

// Returns OK unless the kernel has stores of sums and reads what it stores: rows may be computed
// again, and by other threads. Errors: INVALID_ARGUMENT.
absl::Status CheckRowSums(const UOp* sink);

// Returns the ranges whose points, the last one varying fastest, are the rows that `store`, a store
// of sums of a kernel with these output ranges, divides into blocks.
// Errors: INVALID_ARGUMENT  the place has another form
absl::StatusOr<std::vector<const UOp*>> SummedRows(const UOp* store,
                                                   const std::vector<const UOp*>& outputs);

// Returns the block's number in the place of a store of sums, where it is that of one range whose
// extent the blocks divide; else nullptr. Two ranges can then become one: r * (16 c) + s, divided,
// is r * c + s / 16.
const UOp* BlockOfWhole(const UOp* store);

// Returns the kernel without stores of sums, which computes the same. Errors: as SummedRows.
absl::StatusOr<const UOp*> WithoutRowSums(Graph& graph, const UOp* sink);

}  // namespace outboard::codegen
