#include "compiler/schedule/keys/score_kernels.h"

#include <utility>

namespace outboard::schedule {

AttentionsOfKernels AttentionsOf(const Choice& choice, const Scores& scores) {
  AttentionsOfKernels all;
  for (const UOp* value : choice.kept) {
    AttentionsOfValue& mine = all.emplace_back();
    absl::flat_hash_set<const UOp*> seen;
    std::vector<const UOp*> open = {value};
    while (!open.empty()) {
      const UOp* const node = open.back();
      open.pop_back();
      if (const auto found = scores.attention_of.find(node); found != scores.attention_of.end())
        mine.attentions.insert(found->second);
      for (const UOp* s : node->src) {
        if (!seen.insert(s).second) continue;
        if (choice.read_again.contains(s))
          mine.reads.push_back(s);
        else
          open.push_back(s);
      }
    }
  }
  return all;
}

bool ScoreKernels::Computes(const UOp* ast) {
  const auto [known, fresh] = known_.emplace(ast, true);
  if (fresh) known->second = computes_(ast);
  return known->second;
}

absl::flat_hash_set<int> ScoreKernels::Refused(const std::vector<FusedKernel>& kernels,
                                               const std::vector<const UOp*>& values,
                                               const AttentionsOfKernels& attentions,
                                               const Scores& scores) {
  absl::flat_hash_set<const UOp*> stored;
  for (const FusedKernel& kernel : kernels)
    stored.insert(kernel.buffers.begin(), kernel.buffers.begin() + kernel.stores);
  // A value that no kernel stores is computed by those of its readers. Sources come first.
  absl::flat_hash_map<const UOp*, absl::flat_hash_set<int>> of_value;
  const size_t others = values.size() - attentions.size();
  for (size_t i = 0; i < attentions.size(); ++i) {
    absl::flat_hash_set<int> mine = attentions[i].attentions;
    for (const UOp* read : attentions[i].reads)
      if (const auto source = of_value.find(read); !stored.contains(read) &&
                                                   source != of_value.end())
        mine.insert(source->second.begin(), source->second.end());
    of_value[values[others + i]] = std::move(mine);
  }
  absl::flat_hash_set<int> refused;
  for (const FusedKernel& kernel : kernels) {
    if (Computes(kernel.ast)) continue;
    bool known = false;
    for (int i = 0; i < kernel.stores; ++i) {
      const auto value = of_value.find(kernel.buffers[static_cast<size_t>(i)]);
      if (value == of_value.end()) continue;
      known = known || !value->second.empty();
      refused.insert(value->second.begin(), value->second.end());
    }
    if (!known) return scores.Attentions();
  }
  return refused;
}

}  // namespace outboard::schedule
