#include "compiler/schedule/collective/cut.h"

#include <algorithm>

#include "base/check.h"
#include "compiler/ir/accessors.h"

namespace outboard::schedule {

absl::StatusOr<CutGraph> CutAtTransfers(Graph& graph, const UOp* sink) {
  CutGraph cut;
  cut.sink = sink;
  cut.results = static_cast<int>(sink->src.size());
  const std::vector<const UOp*> order = PostOrder(sink);
  if (std::none_of(order.begin(), order.end(),
                   [](const UOp* node) { return IsCollective(node->op); }))
    return cut;
  int64_t slot = 0;  // the first that no input has
  for (const UOp* node : order)
    if (node->op == Op::kParam) slot = std::max(slot, ParamOf(node).slot() + 1);
  absl::flat_hash_map<const UOp*, const UOp*> made;
  std::vector<const UOp*> sent;
  for (const UOp* node : order) {
    std::vector<const UOp*> src;
    for (const UOp* source : node->src) src.push_back(made.at(source));
    if (!IsCollective(node->op)) {
      const bool same = std::equal(src.begin(), src.end(), node->src.begin());
      if (node->op == Op::kSink) src.insert(src.end(), sent.begin(), sent.end());
      if (same && node->op != Op::kSink) {
        made[node] = node;
      } else {
        OB_ASSIGN_OR_RETURN(made[node], graph.WithSources(node, src));
      }
      continue;
    }
    const CollectiveOf group(node);
    std::vector<int64_t> arg = {slot++};
    std::vector<const UOp*> dims;
    for (const Dim& dim : node->shape) {
      arg.push_back(dim.value());
      if (!dim.is_const()) dims.push_back(dim.expression());
    }
    OB_ASSIGN_OR_RETURN(const UOp* received, graph.Make(Op::kParam, node->dtype, dims, arg));
    made[node] = received;
    cut.transfers.push_back({node->op, group.count(), group.stride(),
                             node->op == Op::kCopy ? CopyOf(node).root() : 0, received,
                             cut.results + static_cast<int>(sent.size()), nullptr});
    sent.push_back(src[0]);
    cut.received_.emplace(received, static_cast<int>(cut.transfers.size()) - 1);
  }
  cut.sink = made.at(sink);
  return cut;
}

absl::StatusOr<CutGraph> WithoutCopies(Graph& graph, CutGraph cut) {
  if (cut.transfers.empty()) return cut;
  absl::flat_hash_map<const UOp*, int> places;
  std::vector<const UOp*> results;
  for (int i = 0; i < cut.results; ++i) {
    results.push_back(cut.sink->src[i]);
    places.emplace(results.back(), i);
  }
  for (CutTransfer& transfer : cut.transfers) {
    const UOp* sent = cut.sink->src[transfer.place];
    // The bytes of a RESHAPE are those of its source, unless memory has room between them.
    while (sent->op == Op::kReshape && IsStatic(sent->shape) && IsStatic(sent->src[0]->shape))
      sent = sent->src[0];
    if (sent->op == Op::kParam) {
      transfer.place = -1;
      transfer.param = sent;
      continue;
    }
    const auto [place, fresh] = places.emplace(sent, static_cast<int>(results.size()));
    if (fresh) results.push_back(sent);
    transfer.place = place->second;
  }
  OB_ASSIGN_OR_RETURN(cut.sink, graph.WithSources(cut.sink, results));
  return cut;
}

SentBefore FindSentBefore(const CutGraph& cut) {
  SentBefore sent;
  for (const CutTransfer& transfer : cut.transfers) {  // earlier ones first
    if (transfer.place >= 0) {
      sent.emplace(transfer.received, cut.sink->src[transfer.place]);
    } else if (const auto before = sent.find(transfer.param); before != sent.end()) {
      sent.emplace(transfer.received, before->second);
    }
  }
  return sent;
}

}  // namespace outboard::schedule
