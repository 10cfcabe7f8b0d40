// Cuts a graph at its transfers, so that the passes that make kernels see an ordinary graph: what a
// transfer sends is a further result of the SINK, what it receives a further PARAM.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"

namespace outboard::schedule {

struct CutTransfer {
  Op op = Op::kUnshard;  // UNSHARD, ALLTOALL or COPY, in a form of LowerCollectives
  int64_t count = 1, stride = 1, root = 0;
  const UOp* received = nullptr;  // a PARAM
  // What is sent: a result of the SINK by its place, or, with place -1, a PARAM as it is.
  int place = -1;
  const UOp* param = nullptr;
};

struct CutGraph {
  const UOp* sink = nullptr;
  int results = 0;                     // those of the SINK before it was cut; the rest is sent
  std::vector<CutTransfer> transfers;  // an order in which they can be made

  bool IsReceived(const UOp* node) const { return received_.contains(node); }

 private:
  friend absl::StatusOr<CutGraph> CutAtTransfers(Graph& graph, const UOp* sink);
  friend absl::StatusOr<CutGraph> WithoutCopies(Graph& graph, CutGraph cut);
  absl::flat_hash_map<const UOp*, int> received_;  // transfers, by what they receive
};

// Cuts a graph as LowerCollectives leaves it.
// Errors: RESOURCE_EXHAUSTED  a limit of the graph
absl::StatusOr<CutGraph> CutAtTransfers(Graph& graph, const UOp* sink);

// Returns `cut` with what is in memory anyway sent from there: inputs, results, and what another
// transfer sends. Call it before WithDistinctResults (schedule.cc).
absl::StatusOr<CutGraph> WithoutCopies(Graph& graph, CutGraph cut);

// What kernels must wait for to read a PARAM that a transfer receives: the value that it sends, be
// it through several transfers; absent where that is an input. By PARAM, for the SINK of `cut`.
using SentBefore = absl::flat_hash_map<const UOp*, const UOp*>;
SentBefore FindSentBefore(const CutGraph& cut);

}  // namespace outboard::schedule
