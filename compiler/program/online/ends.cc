#include "compiler/program/online/ends.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/proof/in_range.h"
#include "compiler/rewrite/conjuncts.h"
#include "compiler/rewrite/substitute.h"

namespace outboard::program {
namespace {

bool IsIdentity(Op op, const UOp* node) {
  if (op == Op::kAdd) return IsZero(node);
  return node->op == Op::kConst && IsFloat(node->dtype) && std::isinf(node->float_value()) &&
         node->float_value() < 0;
}

bool IsBelowEnd(const UOp* condition, const UOp* range) {
  return condition->op == Op::kCmpLt && condition->src[0] == range &&
         condition->src[1] == range->src[0];
}

// The condition without those of its conjuncts; nullptr if nothing is left.
const UOp* WithoutEnd(Graph& graph, const UOp* condition, const UOp* range) {
  const UOp* left = nullptr;
  for (const UOp* conjunct : ConjunctsOf(condition))
    if (!IsBelowEnd(conjunct, range))
      left = left == nullptr ? conjunct : Alu(graph, Op::kAnd, left, conjunct);
  return left;
}

const UOp* TermWithoutEnd(Graph& graph, const UOp* term, Op op, const UOp* range) {
  std::vector<std::pair<const UOp*, bool>> around;  // conditions, and whether the term is the other
  while (term->op == Op::kWhere) {
    const bool other = IsIdentity(op, term->src[1]);
    if (!other && !IsIdentity(op, term->src[2])) break;
    const UOp* const condition = other ? term->src[0] : WithoutEnd(graph, term->src[0], range);
    if (condition != nullptr) around.emplace_back(condition, other);
    term = term->src[other ? 2 : 1];
  }
  const UOp* const identity =
      ConstFloat(graph, term->dtype, op == Op::kAdd ? 0 : -std::numeric_limits<double>::infinity());
  for (size_t i = around.size(); i-- > 0;) {
    const auto& [condition, other] = around[i];
    term =
        other ? Where(graph, condition, identity, term) : Where(graph, condition, term, identity);
  }
  return term;
}

bool HasGate(const UOp* load) {
  return load->op == Op::kLoad && load->src.size() == 3 && IsZero(load->src[2]);
}

// The nodes that are 0 where this gate is false.
absl::flat_hash_set<const UOp*> ZeroBeyond(const codegen::LoopNest& kernel, const UOp* gate) {
  absl::flat_hash_set<const UOp*> zero;
  for (const UOp* node : kernel.nodes) {  // sources first
    const auto source = [&](int i) { return zero.contains(node->src[i]); };
    bool is = false;
    if (node->op == Op::kLoad) {
      is = HasGate(node) && node->src[1] == gate;
    } else if (node->op == Op::kCast || node->op == Op::kNeg || node->op == Op::kFDiv) {
      is = source(0);
    } else if (node->op == Op::kMul) {
      is = source(0) || source(1);
    } else if (node->op == Op::kAdd) {
      is = source(0) && source(1);
    } else if (node->op == Op::kWhere) {
      is = source(1) && source(2);
    } else {
      is = IsZero(node);
    }
    if (is) zero.insert(node);
  }
  return zero;
}

// What a store may depend on where this gate is false: all but what is chosen where it is true.
absl::flat_hash_set<const UOp*> SeenBeyond(const codegen::LoopNest& kernel, const UOp* gate) {
  absl::flat_hash_set<const UOp*> seen;
  std::vector<const UOp*> open(kernel.stores.begin(), kernel.stores.end());
  while (!open.empty()) {
    const UOp* const node = open.back();
    open.pop_back();
    if (!seen.insert(node).second) continue;
    const bool chosen = node->op == Op::kWhere && node->src[0] == gate;
    for (const UOp* s : node->src)
      if (!chosen || s != node->src[1]) open.push_back(s);
  }
  return seen;
}

// What `root` is made of, itself first; none if that is more than a factor of a row has.
std::vector<const UOp*> NodesOfFactor(const UOp* root) {
  constexpr size_t kNodesMax = 256;
  std::vector<const UOp*> nodes = {root};
  absl::flat_hash_set<const UOp*> seen = {root};
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes.size() > kNodesMax) return {};
    for (const UOp* source : nodes[i]->src)
      if (seen.insert(source).second) nodes.push_back(source);
  }
  return nodes;
}

}  // namespace

const UOp* WithoutGatesOfRows(Graph& graph, const codegen::LoopNest& kernel, int range) {
  const UOp* const steps = kernel.ranges[range].node;
  const auto varies = [&](const UOp* node) { return kernel.DepsOf(node) >> range & 1; };
  struct Beyond {
    absl::flat_hash_set<const UOp*> zero, seen;
  };
  absl::flat_hash_map<const UOp*, Beyond> gates;
  // Each gate takes two walks of the kernel: a hostile one has many, of which the rest stay.
  constexpr size_t kGatesMax = 16;
  const auto hides = [&](const UOp* gate, const UOp* product, const UOp* step) {
    if (gates.size() >= kGatesMax && !gates.contains(gate)) return false;
    const auto [known, fresh] = gates.try_emplace(gate);
    Beyond& beyond = known->second;
    if (fresh) beyond = {ZeroBeyond(kernel, gate), SeenBeyond(kernel, gate)};
    return beyond.zero.contains(step) || !beyond.seen.contains(product);
  };
  // A factor of a row without gates where the product is 0, or not seen; itself if it varies all
  // the same.
  const auto ungated = [&](const UOp* product, const UOp* row, const UOp* step) {
    absl::flat_hash_map<const UOp*, const UOp*> by;
    for (const UOp* node : NodesOfFactor(row)) {
      if (node->op == Op::kReduceLoop) return row;
      if (HasGate(node) && !varies(node->src[0]) && varies(node->src[1]) &&
          hides(node->src[1], product, step))
        by[node] = graph.MakeChecked(Op::kLoad, DType::kVoid, {node->src[0]});
    }
    if (by.empty()) return row;
    const UOp* const made = Substitute(graph, row, by);
    const std::vector<const UOp*> left = PostOrder(made);
    return std::find(left.begin(), left.end(), steps) == left.end() ? made : row;
  };
  absl::flat_hash_map<const UOp*, const UOp*> by;
  for (const UOp* node : kernel.nodes) {  // sources first
    if (node->op != Op::kMul) continue;
    for (const int side : {0, 1}) {
      const UOp *const row = node->src[side], *const step = node->src[1 - side];
      if (!varies(row) || !varies(step)) continue;
      const UOp* const now = ungated(node, row, step);
      if (now == row) continue;
      const UOp* const other = Substitute(graph, step, by);
      by[node] = Alu(graph, Op::kMul, side == 0 ? now : other, side == 0 ? other : now);
      break;
    }
  }
  if (by.empty()) return nullptr;
  std::vector<const UOp*> stores;
  for (const UOp* store : kernel.stores) stores.push_back(Substitute(graph, store, by));
  const UOp* const without = Sink(graph, stores);
  const auto guarded = proof::GuardUnproved(graph, without);
  return guarded.ok() && *guarded == without ? without : nullptr;
}

const UOp* WithoutEndOfSteps(Graph& graph, const codegen::LoopNest& kernel, int range) {
  const UOp* const steps = kernel.ranges[range].node;
  absl::flat_hash_map<const UOp*, const UOp*> by;
  for (const UOp* node : kernel.nodes) {
    if (node->op != Op::kReduceLoop || node->src.size() != 2 || node->src[1] != steps ||
        !IsFloat(node->dtype))
      continue;
    const Op op = ReduceOf(node).op();
    if (op != Op::kAdd && op != Op::kMax) continue;
    std::vector<const UOp*> src(node->src.begin(), node->src.end());
    src[0] = Substitute(graph, TermWithoutEnd(graph, node->src[0], op, steps), by);
    by[node] = graph.MakeChecked(Op::kReduceLoop, node->dtype, src, node->arg);
  }
  std::vector<const UOp*> stores;
  for (const UOp* store : kernel.stores) stores.push_back(Substitute(graph, store, by));
  return Sink(graph, stores);
}

}  // namespace outboard::program
