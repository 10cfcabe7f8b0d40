#include "compiler/rewrite/substitute.h"

#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "compiler/rewrite/rebuild.h"

namespace outboard {
namespace {

// The nodes under `root` that lead to it past none of the keys, sources first, left to right. What
// only replaced nodes read is not visited: it may be a whole program.
std::vector<const UOp*> OrderAbove(const UOp* root,
                                   const absl::flat_hash_map<const UOp*, const UOp*>& keys) {
  struct Open {
    const UOp* node;
    size_t next = 0;  // source to visit
  };
  std::vector<const UOp*> order;
  absl::flat_hash_set<const UOp*> seen = {root};
  std::vector<Open> open = {{root}};
  while (!open.empty()) {
    Open& top = open.back();
    const bool is_key = keys.contains(top.node);
    if (!is_key && top.next < top.node->src.size()) {
      const UOp* const source = top.node->src[top.next++];
      if (seen.insert(source).second) open.push_back({source});
      continue;
    }
    order.push_back(top.node);
    open.pop_back();
  }
  return order;
}

}  // namespace

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
  for (const UOp* node : OrderAbove(root, by)) {
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
