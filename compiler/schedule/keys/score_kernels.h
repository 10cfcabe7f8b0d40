// Which kernels of a schedule compute scores, and whether the target computes these well: an
// attention one of whose kernels it does not stores its scores, and no other one does for that.
#pragma once

#include <functional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/ir/uop.h"
#include "compiler/schedule/attention.h"
#include "compiler/schedule/fuse_kernels.h"
#include "compiler/schedule/materialize.h"

namespace outboard::schedule {

// A value that is stored: the attentions whose scores its kernel computes (Scores::attention_of),
// and the stored values that it reads, with which it may be fused.
struct AttentionsOfValue {
  absl::flat_hash_set<int> attentions;
  std::vector<const UOp*> reads;
};
// In the order of Choice::kept.
using AttentionsOfKernels = std::vector<AttentionsOfValue>;
AttentionsOfKernels AttentionsOf(const Choice& choice, const Scores& scores);

// Asks the target once for each kernel. Threads: one.
class ScoreKernels {
 public:
  // `computes` outlives this. Null: nothing is asked.
  explicit ScoreKernels(const std::function<bool(const UOp*)>& computes) : computes_(computes) {}

  bool AreAsked() const { return computes_ != nullptr; }
  // Requires AreAsked.
  bool Computes(const UOp* ast);

  // Returns the attentions of those kernels that the target does not compute; all of `scores` where
  // such a kernel is of none that is known. `values` are those that the kernels store, those of
  // `attentions` last, in their order.
  absl::flat_hash_set<int> Refused(const std::vector<FusedKernel>& kernels,
                                   const std::vector<const UOp*>& values,
                                   const AttentionsOfKernels& attentions, const Scores& scores);

 private:
  const std::function<bool(const UOp*)>& computes_;
  absl::flat_hash_map<const UOp*, bool> known_;
};

}  // namespace outboard::schedule
