#include "compiler/rewrite/substitute.h"

#include <vector>

#include "base/check.h"
#include "compiler/rewrite/rebuild.h"

namespace outboard {

const UOp* Substitute(Graph& graph, const UOp* root,
                      const absl::flat_hash_map<const UOp*, const UOp*>& by) {
  return Substitute(graph, root, by, [&graph](const UOp* node, Sources src) {
    return WithSourcesOrNull(graph, node, src);
  });
}

const UOp* Substitute(Graph& graph, const UOp* root,
                      const absl::flat_hash_map<const UOp*, const UOp*>& by,
                      absl::FunctionRef<const UOp*(const UOp* node, Sources src)> remake) {
  absl::flat_hash_map<const UOp*, const UOp*> made;
  std::vector<const UOp*> src;
  for (const UOp* node : PostOrder(root)) {
    const UOp* result = node;
    if (const auto found = by.find(node); found != by.end()) {
      result = found->second;
    } else {
      src.clear();
      bool changed = false;
      for (const UOp* s : node->src) {
        src.push_back(made.at(s));
        changed = changed || src.back() != s;
      }
      if (changed) {
        result = remake(node, src);
        OB_CHECK(result != nullptr);
      }
    }
    made.emplace(node, result);
  }
  return made.at(root);
}

}  // namespace outboard
