#include "compiler/schedule/merge.h"

#include <algorithm>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/ir/build.h"
#include "compiler/ir/check.h"
#include "compiler/rewrite/simplify.h"

namespace outboard::schedule {
namespace {

// A kernel being built: expressions still name their own kernel's slots, so buffers are looked up
// by node.
struct Draft {
  std::vector<int64_t> extents;  // of the output ranges
  bool has_loop = false;
  std::vector<const UOp*> stored;                        // tensor nodes written
  std::vector<const UOp*> stores;                        // STOREs, over `buffers`' slots
  std::vector<const UOp*> buffers;                       // by slot
  absl::flat_hash_map<const UOp*, const UOp*> place_of;  // stored tensor node -> its i64 place
};

// Output ranges depend on the shape alone, so equal extents mean equal ranges.
std::vector<int64_t> OutputExtents(const UOp* ast) {
  std::map<int64_t, int64_t> extent_of;  // by id
  for (const UOp* node : PostOrder(ast->src[0]->src[0]))
    if (node->op == Op::kRange) extent_of[node->arg[0]] = node->arg[1];
  std::vector<int64_t> extents;
  for (const auto& [id, extent] : extent_of) extents.push_back(extent);
  return extents;
}

Draft MakeDraft(const LoweredKernel& kernel) {
  Draft draft;
  draft.extents = OutputExtents(kernel.ast);
  for (const UOp* node : PostOrder(kernel.ast)) draft.has_loop |= node->op == Op::kReduceLoop;
  draft.stored = {kernel.buffers[0]};
  draft.stores = {kernel.ast->src[0]};
  draft.buffers = kernel.buffers;
  draft.place_of[kernel.buffers[0]] = kernel.ast->src[0]->src[0]->src[1];
  return draft;
}

class Merger {
 public:
  explicit Merger(Graph& graph) : graph_(graph) {}

  std::vector<MergedKernel> Run(std::vector<LoweredKernel> kernels) {
    for (LoweredKernel& kernel : kernels) {
      Draft draft = MakeDraft(kernel);
      if (draft.has_loop || !JoinEarlier(draft)) {
        for (const UOp* node : draft.stored) made_by_[node] = drafts_.size();
        drafts_.push_back(std::move(draft));
      }
    }
    std::vector<MergedKernel> merged;
    for (Draft& draft : drafts_) merged.push_back(Finish(draft));
    return merged;
  }

 private:
  bool JoinEarlier(const Draft& draft) {
    // Nothing before the last kernel it reads from can take it.
    size_t first = 0;
    for (size_t i = 1; i < draft.buffers.size(); ++i)
      if (const auto maker = made_by_.find(draft.buffers[i]); maker != made_by_.end())
        first = std::max(first, maker->second);
    for (size_t i = first; i < drafts_.size(); ++i)
      if (CanJoin(drafts_[i], draft)) {
        Join(drafts_[i], draft);
        made_by_[draft.stored[0]] = i;
        return true;
      }
    return false;
  }

  static bool CanJoin(const Draft& host, const Draft& guest) {
    if (host.extents != guest.extents) return false;
    bool shares = false;
    for (size_t i = 1; i < guest.buffers.size(); ++i)
      shares |= std::find(host.buffers.begin(), host.buffers.end(), guest.buffers[i]) !=
                host.buffers.end();
    if (!shares) return false;
    for (const UOp* node : PostOrder(guest.stores[0])) {
      if (node->op != Op::kIndex || node->src[0]->arg[0] == 0) continue;
      const auto stored = host.place_of.find(guest.buffers[node->src[0]->arg[0]]);
      if (stored != host.place_of.end() && stored->second != node->src[1]) return false;
    }
    return true;
  }

  // The guest's store over the host's slots, with what the host stores taken from its values.
  void Join(Draft& host, const Draft& guest) {
    absl::flat_hash_map<const UOp*, const UOp*> made;
    for (const UOp* node : PostOrder(guest.stores[0])) {
      if (node->op == Op::kGlobal) {
        made[node] = graph_.MakeChecked(Op::kGlobal, node->dtype, {},
                                        {SlotIn(host, guest.buffers[node->arg[0]]), node->arg[1]});
        continue;
      }
      if (node->op == Op::kLoad) {
        const UOp* const read = guest.buffers[node->src[0]->src[0]->arg[0]];
        const auto stored = std::find(host.stored.begin(), host.stored.end(), read);
        if (stored != host.stored.end()) {
          const UOp* value = host.stores[stored - host.stored.begin()]->src[1];
          if (node->src.size() == 3)
            value = Where(graph_, made.at(node->src[1]), value, made.at(node->src[2]));
          made[node] = value;
          continue;
        }
      }
      std::vector<const UOp*> src;
      for (const UOp* s : node->src) src.push_back(made.at(s));
      made[node] = graph_.MakeChecked(node->op, node->dtype, src, node->arg);
    }
    host.stored.push_back(guest.stored[0]);
    host.stores.push_back(made.at(guest.stores[0]));
    host.place_of[guest.stored[0]] = guest.place_of.at(guest.stored[0]);
  }

  static int64_t SlotIn(Draft& host, const UOp* buffer) {
    const auto found = std::find(host.buffers.begin(), host.buffers.end(), buffer);
    if (found != host.buffers.end()) return found - host.buffers.begin();
    host.buffers.push_back(buffer);
    return static_cast<int64_t>(host.buffers.size()) - 1;
  }

  // Numbers the slots anew: what is stored first, then what is still read, in the order of use.
  MergedKernel Finish(const Draft& draft) {
    MergedKernel kernel;
    kernel.stores = static_cast<int>(draft.stored.size());
    kernel.buffers = draft.stored;
    absl::flat_hash_map<const UOp*, const UOp*> made;
    const UOp* const sink = Sink(graph_, draft.stores);
    for (const UOp* node : PostOrder(sink)) {
      if (node->op == Op::kGlobal) {
        const UOp* const buffer = draft.buffers[node->arg[0]];
        auto place = std::find(kernel.buffers.begin(), kernel.buffers.end(), buffer);
        if (place == kernel.buffers.end()) place = kernel.buffers.insert(place, buffer);
        made[node] = graph_.MakeChecked(Op::kGlobal, node->dtype, {},
                                        {place - kernel.buffers.begin(), node->arg[1]});
        continue;
      }
      std::vector<const UOp*> src;
      for (const UOp* s : node->src) src.push_back(made.at(s));
      made[node] = graph_.MakeChecked(node->op, node->dtype, src, node->arg);
    }
    kernel.ast = Simplify(graph_, made.at(sink));
    return kernel;
  }

  Graph& graph_;
  std::vector<Draft> drafts_;
  absl::flat_hash_map<const UOp*, size_t> made_by_;  // tensor node -> its draft
};

}  // namespace

std::vector<MergedKernel> MergeKernels(Graph& graph, std::vector<LoweredKernel> kernels) {
  return Merger(graph).Run(std::move(kernels));
}

}  // namespace outboard::schedule
