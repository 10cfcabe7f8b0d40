#include "compiler/schedule/keys/score_kernels.h"

namespace outboard::schedule {

AttentionsOfKernels AttentionsOf(const Choice& choice, const Scores& scores) {
  AttentionsOfKernels all;
  for (const UOp* value : choice.kept) {
    absl::flat_hash_set<int>& mine = all.emplace_back();
    absl::flat_hash_set<const UOp*> seen;
    std::vector<const UOp*> open = {value};
    while (!open.empty()) {
      const UOp* const node = open.back();
      open.pop_back();
      if (const auto found = scores.attention_of.find(node); found != scores.attention_of.end())
        mine.insert(found->second);
      for (const UOp* s : node->src)
        if (!choice.read_again.contains(s) && seen.insert(s).second) open.push_back(s);
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
                                               const std::vector<const UOp*>& kept,
                                               const AttentionsOfKernels& attentions,
                                               const Scores& scores) {
  absl::flat_hash_map<const UOp*, size_t> place_of;
  const size_t others = kept.size() - attentions.size();
  for (size_t i = 0; i < attentions.size(); ++i) place_of[kept[others + i]] = i;
  absl::flat_hash_set<int> refused;
  for (const FusedKernel& kernel : kernels) {
    if (Computes(kernel.ast)) continue;
    bool known = false;
    for (int i = 0; i < kernel.stores; ++i) {
      const auto place = place_of.find(kernel.buffers[static_cast<size_t>(i)]);
      if (place == place_of.end()) continue;
      const absl::flat_hash_set<int>& of_value = attentions[place->second];
      known = known || !of_value.empty();
      refused.insert(of_value.begin(), of_value.end());
    }
    if (!known) return scores.Attentions();
  }
  return refused;
}

}  // namespace outboard::schedule
