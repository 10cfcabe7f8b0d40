// Runs a sharded graph on a group of interpreted ranks and compares with the whole graph on one.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "compiler/ir/host_tensor.h"
#include "compiler/ir/uop.h"
#include "compiler/shard/shard.h"

namespace outboard::test {

// Shards `sink` in `graph`, cuts `params` as `layouts` say, runs all ranks in lock step and joins
// each result. Returns "" if every rank has equal bytes of what it shares with others and the
// joined results are those of the graph on one device within the tolerances of docs/semantics.md;
// otherwise what differs. `sharded` is set where sharding itself succeeds.
// With `relative_error` floats are compared by it instead, relative to the largest number of a
// result or 1e-3: for steps so long that their tolerances say nothing.
std::string ShardDisagreement(Graph& graph, const UOp* sink, const shard::Mesh& mesh,
                              absl::Span<const shard::Layout> layouts,
                              const shard::ShardOptions& options,
                              std::span<const HostTensor> params,
                              std::span<const Binding> bindings = {},
                              shard::ShardedGraph* sharded = nullptr,
                              double relative_error = 0);

}  // namespace outboard::test
