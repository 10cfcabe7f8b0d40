// The reference interpreter for a group of ranks: defines the results of a device-level graph.
//
// All ranks evaluate the same graph, in lock step: up to a collective each for itself, then the
// collective for all, node by node. It knows nothing of the pass that makes such graphs
// (compiler/shard) and shares no code with what executors do with them, so it judges both.
//
// Ranks are numbered with the last axis of the mesh fastest. The VAR of slot limits::kRankSlot is
// bound to the rank. Folds are in the order of the group: ((x0 op x1) op x2) ..., each step rounded
// to the type; floats of 16 or fewer bits are folded in f32 and rounded once.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/host_tensor.h"
#include "compiler/ir/uop.h"
#include "compiler/reference/interpret.h"

namespace outboard {

// Returns by rank what Interpret returns for one. `mesh` are the sizes of its axes, whose product
// is the number of ranks; params[r] are the tensors of rank r. The limits of `options` are those of
// all ranks together.
//
// Errors: INVALID_ARGUMENT    `sink` is no SINK; a mesh without ranks, or of more than
//                             limits::kRanksMax; not one list of tensors for each rank; a
//                             collective whose group is no axis of the mesh, nor some that follow
//                             each other; values of different shapes in a collective; a binding of
//                             the rank; for a rank the errors of Interpret, with its number
//         RESOURCE_EXHAUSTED  a limit of `options`
// Threads: pure.
absl::StatusOr<std::vector<std::vector<HostTensor>>> InterpretGroup(
    const UOp* sink, std::span<const int64_t> mesh, std::span<const std::vector<HostTensor>> params,
    std::span<const Binding> bindings = {}, const InterpretOptions& options = {});

// Brings what the ranks of a collective's group have, by place, to a rank that has `mine`.
using GroupGather = std::function<absl::StatusOr<std::vector<HostTensor>>(const UOp* collective,
                                                                          const HostTensor& mine)>;

// As InterpretGroup, for one rank alone: the others are elsewhere, at the same collective, and
// `gather` reaches them. Requires that every group of the graph is one of the mesh.
// Errors: as Interpret; those of `gather`; INVALID_ARGUMENT for values of different shapes
absl::StatusOr<std::vector<HostTensor>> InterpretRank(const UOp* sink, int64_t rank,
                                                      std::span<const HostTensor> params,
                                                      std::span<const Binding> bindings,
                                                      const GroupGather& gather,
                                                      const InterpretOptions& options = {});

}  // namespace outboard
