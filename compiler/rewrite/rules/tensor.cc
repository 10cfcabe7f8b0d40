// Movements and reductions of tensors, and the kernel's loops. Where a shape has symbolic
// dimensions, only what needs no arithmetic on them is done.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/limits.h"
#include "compiler/rewrite/rules/fold.h"
#include "compiler/rewrite/rebuild.h"
#include "compiler/rewrite/rules/rules.h"
#include "compiler/rewrite/substitute.h"

namespace outboard::rules {
namespace {

using namespace pattern;

// ---- movements ----------------------------------------------------------------------------------

bool IsIdentity(const UOp* node) {
  const UOp* const x = node->src[0];
  switch (node->op) {
    case Op::kReshape:
    case Op::kExpand: return node->shape == x->shape;
    case Op::kPermute:
      for (int i = 0; i < node->rank(); ++i)
        if (PermuteOf(node).axis(i) != i) return false;
      return true;
    case Op::kFlip:
      for (const int64_t axis : FlipOf(node).axes())
        if (x->shape[axis] != Dim(1)) return false;
      return true;
    default:
      return (node->op == Op::kPad || node->op == Op::kShrink) && IsStatic(node->shape) &&
             node->shape == x->shape;
  }
}

const UOp* MovementOfNothing(Graph&, const Match& m) {
  return IsIdentity(m.root) ? m.root->src[0] : nullptr;
}

const UOp* MovementOfConstant(Graph& g, const Match& m) {
  const UOp* const root = m.root;
  const UOp* const constant = ConstantOf(root->src[0]);
  if (constant == nullptr || (root->op == Op::kPad && !IsPositiveZero(constant))) return nullptr;
  return Full(g, constant, root->shape);
}

// Whether a PAD or SHRINK has no symbolic arguments. Its shape may be static in spite of them:
// n zeros before and 3 - n after are 3.
bool HasNumbersOnly(const UOp* node) { return node->src.size() == 1; }

const UOp* MergeMovements(Graph& g, const Match& m) {
  const UOp* const root = m.root;
  const UOp* const inner = root->src[0];
  if (inner->op != root->op) return nullptr;
  const UOp* const x = inner->src[0];
  switch (root->op) {
    case Op::kReshape: return Reshape(g, x, root->shape);
    case Op::kExpand: return Expand(g, x, root->shape);
    case Op::kPermute: {
      std::vector<int64_t> axes;
      for (const int64_t axis : PermuteOf(root).axes()) axes.push_back(PermuteOf(inner).axis(axis));
      return Permute(g, x, axes);
    }
    case Op::kFlip: {
      const auto outer = FlipOf(root).axes();
      std::vector<int64_t> axes(outer.begin(), outer.end());
      for (const int64_t axis : FlipOf(inner).axes()) {
        const auto twice = std::find(axes.begin(), axes.end(), axis);
        twice == axes.end() ? axes.push_back(axis) : static_cast<void>(axes.erase(twice));
      }
      std::sort(axes.begin(), axes.end());
      return axes.empty() ? x : Flip(g, x, axes);
    }
    default: break;
  }
  // PAD and SHRINK: numbers add up.
  if (!HasNumbersOnly(root) || !HasNumbersOnly(inner) || !IsStatic(x->shape)) return nullptr;
  Shape places;
  for (int i = 0; i < x->rank(); ++i) {
    if (root->op == Op::kPad) {
      const PadOf pad(root), first(inner);
      places.emplace_back(first.low(i).value() + pad.low(i).value());
      places.emplace_back(first.high(i).value() + pad.high(i).value());
    } else {
      const ShrinkOf shrink(root), first(inner);
      places.emplace_back(first.begin(i).value() + shrink.begin(i).value());
      places.emplace_back(first.begin(i).value() + shrink.end(i).value());
    }
  }
  return root->op == Op::kPad ? Pad(g, x, places) : Shrink(g, x, places);
}

// Shrinking away no more than what was padded.
const UOp* ShrinkOfPad(Graph& g, const Match& m) {
  const UOp *const root = m.root, *const pad = root->src[0], *const x = pad->src[0];
  if (!HasNumbersOnly(root) || !HasNumbersOnly(pad) || !IsStatic(x->shape)) return nullptr;
  Shape places;
  for (int i = 0; i < x->rank(); ++i) {
    const int64_t low = PadOf(pad).low(i).value();
    const int64_t begin = ShrinkOf(root).begin(i).value() - low;
    const int64_t end = ShrinkOf(root).end(i).value() - low;
    if (begin < 0 || end < begin || end > x->shape[i].value()) return nullptr;
    places.emplace_back(begin);
    places.emplace_back(end);
  }
  return Shrink(g, x, places);
}

// ---- reductions ---------------------------------------------------------------------------------

// The sum, product or maximum of `count` >= 1 copies of a constant; nullptr where it could round.
const UOp* Repeated(Graph& g, Op op, const UOp* constant, int64_t count) {
  if (op == Op::kMax) return constant;
  const DType dtype = constant->dtype;
  if (IsFloat(dtype))
    return op == Op::kAdd && constant->float_value() == 0 ? ConstFloat(g, dtype, 0) : nullptr;
  if (op == Op::kAdd)
    return ConstInt(g, dtype,
                    *FoldInt(Op::kMul, dtype, constant->int_value(), WrapTo(dtype, count)));
  return constant->int_value() == 0 || constant->int_value() == 1 ? constant : nullptr;
}

const UOp* ReduceOfConstant(Graph& g, const Match& m) {
  const UOp *const root = m.root, *const x = root->src[0];
  const UOp* const constant = ConstantOf(x);
  if (constant == nullptr || !IsStatic(x->shape)) return nullptr;
  const int64_t from = ElementCount(x->shape), to = ElementCount(root->shape);
  if (from == 0 || to == 0) return nullptr;
  const UOp* const value = Repeated(g, ReduceOf(root).op(), constant, from / to);
  return value == nullptr ? nullptr : Full(g, value, root->shape);
}

// Every axis is of length 1 already. The sign of a zero sum is free.
const UOp* ReduceOfNothing(Graph&, const Match& m) {
  return m.root->shape == m.root->src[0]->shape ? m.root->src[0] : nullptr;
}

const UOp* ReduceOfReduce(Graph& g, const Match& m) {
  const UOp *const root = m.root, *const inner = root->src[0];
  const Op op = ReduceOf(root).op();
  // Between two sums of floats there is a rounding that a program may have meant.
  if (ReduceOf(inner).op() != op || (IsFloat(root->dtype) && op != Op::kMax)) return nullptr;
  const auto outer = ReduceOf(root).axes();
  std::vector<int64_t> axes(outer.begin(), outer.end());
  for (const int64_t axis : ReduceOf(inner).axes())
    if (std::find(axes.begin(), axes.end(), axis) == axes.end()) axes.push_back(axis);
  return Reduce(g, op, inner->src[0], axes);
}

// Loops of one turn, and loops over a constant.
const UOp* LoopOfLittle(Graph& g, const Match& m) {
  const UOp* const root = m.root;
  absl::flat_hash_map<const UOp*, const UOp*> zeros;
  std::vector<const UOp*> src = {root->src[0]};
  __int128 turns = 1;
  for (const UOp* range : ReduceOf(root).ranges()) {
    if (RangeOf(range).extent() == 1)
      zeros[range] = ConstIndex(g, 0);
    else
      src.push_back(range);
    turns = std::min<__int128>(turns * RangeOf(range).extent(), int64_t{1} << 62);
  }
  const auto op = ReduceOf(root).op();
  if (root->src[0]->is_const() && turns > 0 && turns < int64_t{1} << 62)
    if (const UOp* value = Repeated(g, op, root->src[0], static_cast<int64_t>(turns))) return value;
  if (zeros.empty()) return nullptr;
  // Every node of the body may be made anew, which is more than what a rule may count on.
  const auto body = static_cast<int64_t>(PostOrder(src[0]).size());
  if (g.node_count() + body >= limits::kGraphNodesMax) return nullptr;
  src[0] = Substitute(g, src[0], zeros);
  return src.size() == 1 ? src[0] : g.MakeChecked(Op::kReduceLoop, DType::kVoid, src, root->arg);
}

// clang-format off
constexpr Rule kRules[] = {
    {"reshape-nothing",       node(Op::kReshape),                       MovementOfNothing},
    {"expand-nothing",        node(Op::kExpand),                        MovementOfNothing},
    {"permute-nothing",       node(Op::kPermute),                       MovementOfNothing},
    {"flip-nothing",          node(Op::kFlip),                          MovementOfNothing},
    {"pad-nothing",           node(Op::kPad),                           MovementOfNothing},
    {"shrink-nothing",        node(Op::kShrink),                        MovementOfNothing},
    {"reshape-constant",      node(Op::kReshape),                       MovementOfConstant},
    {"expand-constant",       node(Op::kExpand),                        MovementOfConstant},
    {"permute-constant",      node(Op::kPermute),                       MovementOfConstant},
    {"flip-constant",         node(Op::kFlip),                          MovementOfConstant},
    {"pad-constant",          node(Op::kPad),                           MovementOfConstant},
    {"shrink-constant",       node(Op::kShrink),                        MovementOfConstant},
    {"reshape-reshape",       node(Op::kReshape),                       MergeMovements},
    {"expand-expand",         node(Op::kExpand),                        MergeMovements},
    {"permute-permute",       node(Op::kPermute),                       MergeMovements},
    {"flip-flip",             node(Op::kFlip),                          MergeMovements},
    {"pad-pad",               node(Op::kPad),                           MergeMovements},
    {"shrink-shrink",         node(Op::kShrink),                        MergeMovements},
    {"shrink-pad",            unary(Op::kShrink, node(Op::kPad)),       ShrinkOfPad},
    {"reduce-nothing",        node(Op::kReduce),                        ReduceOfNothing},
    {"reduce-constant",       node(Op::kReduce),                        ReduceOfConstant},
    {"reduce-reduce",         unary(Op::kReduce, node(Op::kReduce)),    ReduceOfReduce},
    {"contiguous-contiguous", contiguous(contiguous(x)), contiguous(x)},
    {"loop-of-little",        node(Op::kReduceLoop),                    LoopOfLittle},
};
// clang-format on

}  // namespace

std::span<const Rule> Tensor() { return kRules; }

}  // namespace outboard::rules
