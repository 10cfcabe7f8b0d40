#include "compiler/rewrite/conjuncts.h"

#include "absl/container/flat_hash_set.h"

namespace outboard {

std::vector<const UOp*> ConjunctsOf(const UOp* condition) {
  std::vector<const UOp*> conjuncts, open = {condition};
  absl::flat_hash_set<const UOp*> seen;
  while (!open.empty()) {
    const UOp* const node = open.back();
    open.pop_back();
    if (!seen.insert(node).second) continue;
    if (node->op == Op::kAnd && IsBool(node->dtype)) {
      open.insert(open.end(), {node->src[1], node->src[0]});
    } else {
      conjuncts.push_back(node);
    }
  }
  return conjuncts;
}

}  // namespace outboard
