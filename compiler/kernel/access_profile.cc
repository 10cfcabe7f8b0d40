#include "compiler/kernel/access_profile.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"

namespace outboard::codegen {
namespace {

// `roots` and what they need, not into reductions. Index arithmetic is not listed: its cost is in
// the accesses.
std::vector<const UOp*> NodesOf(const std::vector<const UOp*>& roots) {
  std::vector<const UOp*> out, stack(roots.rbegin(), roots.rend());
  absl::flat_hash_set<const UOp*> seen;
  while (!stack.empty()) {
    const UOp* const node = stack.back();
    stack.pop_back();
    if (!seen.insert(node).second) continue;
    out.push_back(node);
    if (node->op == Op::kReduceLoop) continue;
    const bool access = node->op == Op::kLoad || node->op == Op::kStore;
    for (size_t i = node->src.size(); i-- > (access ? 1 : 0);) stack.push_back(node->src[i]);
  }
  return out;
}

Access MakeAccess(const LoopNest& kernel, AffineForms& forms, const UOp* node) {
  Access access;
  access.node = node;
  access.index = node->src[0];
  access.deps = kernel.DepsOf(node);
  access.store = node->op == Op::kStore;
  access.gated = node->src.size() == 3;
  RangeSet other = 0;
  for (const auto& [term, coefficient] : forms.Of(access.index->src[1]).terms) {
    if (term->op == Op::kRange) continue;
    access.irregular |= kernel.DepsOf(term);
    const bool divided = (term->op == Op::kIDiv || term->op == Op::kMod) &&
                         term->src[0]->op == Op::kRange && term->src[1]->is_const() &&
                         term->src[1]->int_value() > 0;
    (divided ? access.divided : other) |= kernel.DepsOf(term);
    access.rows = access.rows || (divided && term->op == Op::kMod);
    if (divided) access.divisor = std::max(access.divisor, term->src[1]->int_value());
  }
  access.divided &= ~other;
  return access;
}

Body MakeBody(const LoopNest& kernel, AffineForms& forms, const std::vector<const UOp*>& roots,
              RangeSet ranges) {
  Body body;
  body.ranges = ranges;
  for (size_t i = 0; i < kernel.ranges.size(); ++i)
    if (ranges >> i & 1) body.points *= static_cast<double>(kernel.ranges[i].extent);
  for (const UOp* node : NodesOf(roots)) {
    const RangeSet deps = kernel.DepsOf(node);
    if (node->op == Op::kLoad || node->op == Op::kStore) {
      body.accesses.push_back(MakeAccess(kernel, forms, node));
    } else if (IsTranscendental(node->op)) {
      body.slow_ops.push_back(deps);  // of f64: a call for each element
    } else if ((IsAlu(node->op) || node->op == Op::kCast) && node->dtype != DType::kI64) {
      body.ops.push_back(deps);
    }
  }
  return body;
}

}  // namespace

std::vector<Body> FindBodies(const LoopNest& kernel, AffineForms& forms) {
  std::vector<Body> bodies;
  for (const ReduceGroup& group : kernel.groups) {
    std::vector<const UOp*> roots;
    RangeSet ranges = group.deps;
    for (const UOp* node : group.nodes) roots.push_back(node->src[0]);
    for (const int range : group.ranges) ranges |= RangeSet{1} << range;
    bodies.push_back(MakeBody(kernel, forms, roots, ranges));
    for (size_t i = 0; i < group.nodes.size(); ++i)
      bodies.back().ops.push_back(ranges);  // the fold itself
  }
  bodies.push_back(
      MakeBody(kernel, forms, kernel.stores, (RangeSet{1} << kernel.output_count) - 1));
  return bodies;
}

}  // namespace outboard::codegen
