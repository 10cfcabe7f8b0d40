#include "tests/compiler/rewrite_expressions.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/print.h"

namespace outboard::test {
namespace {

using reference::LaneBlock;

bool IsLeaf(const UOp* node) {
  return node->op == Op::kParam || node->op == Op::kVar || node->op == Op::kRange ||
         node->op == Op::kGlobal;
}

void Select(const LaneBlock& condition, const LaneBlock& a, const LaneBlock& b, LaneBlock& out) {
  for (size_t k = 0; k < condition.i.size(); ++k) {
    const LaneBlock& from = condition.i[k] ? a : b;
    if (!a.f.empty()) out.f[k] = from.f[k];
    if (!a.i.empty()) out.i[k] = from.i[k];
  }
}

LaneBlock Splat(const UOp* constant, int64_t lanes) {
  LaneBlock tile;
  tile.Resize(constant->dtype, lanes);
  std::fill(tile.f.begin(), tile.f.end(), IsFloat(constant->dtype) ? constant->float_value() : 0);
  std::fill(tile.i.begin(), tile.i.end(), ConstantBits(constant));
  return tile;
}

int64_t Corner(DType dtype, std::mt19937_64& random) {
  const int64_t corners[] = {
      0, 1, 2, 3, -1, -2, IntMin(dtype), IntMin(dtype) + 1, IntMax(dtype), IntMax(dtype) - 1};
  return WrapTo(dtype, corners[random() % std::size(corners)]);
}

double RandomFloat(DType dtype, std::mt19937_64& random) {
  switch (random() % 8) {
    case 0: return RoundTo(dtype, std::numeric_limits<double>::quiet_NaN());
    case 1: return RoundTo(dtype, random() % 2 ? HUGE_VAL : -HUGE_VAL);
    case 2: return random() % 2 ? -0.0 : 0.0;
    case 3: return static_cast<double>(random() % 8) - 4;
    default: break;
  }
  const uint64_t bits = random();  // any bits of the type
  return LoadFloat(dtype, &bits);
}

int64_t RandomInt(const UOp* leaf, std::mt19937_64& random) {
  if (random() % 4 == 0) {
    const int64_t corner = Corner(leaf->dtype, random);
    if (corner >= leaf->vmin && corner <= leaf->vmax) return corner;
    return random() % 2 ? leaf->vmin : leaf->vmax;
  }
  const uint64_t span = static_cast<uint64_t>(leaf->vmax) - static_cast<uint64_t>(leaf->vmin) + 1;
  const uint64_t r = random() >> (random() % 2 ? 0 : random() % 64);
  return static_cast<int64_t>(static_cast<uint64_t>(leaf->vmin) + (span == 0 ? r : r % span));
}

}  // namespace

int64_t MemoryAt(int64_t place) { return 1000 + 7 * place; }

LaneBlock Evaluate(const UOp* root, const Assignment& leaves, int64_t lanes) {
  absl::flat_hash_map<const UOp*, LaneBlock> made;
  for (const UOp* node : PostOrder(root)) {
    LaneBlock& out = made[node];
    std::vector<const LaneBlock*> src;
    for (const UOp* s : node->src) src.push_back(&made.at(s));
    if (IsLeaf(node)) {
      const auto found = leaves.find(node);
      if (found != leaves.end()) out = found->second;
      continue;
    }
    switch (node->op) {
      case Op::kConst: out = Splat(node, lanes); break;
      case Op::kIndex:
        if (const auto value = leaves.find(node->src[0]); value != leaves.end()) {
          out = value->second;
        } else {
          for (const int64_t place : src[1]->i)
            out.i.push_back(place >= 0 && place < GlobalOfAccess(node).elements() ? MemoryAt(place)
                                                                                  : kNowhere);
        }
        break;
      case Op::kLoad:
        out = *src[0];
        if (src.size() == 3) Select(*src[1], *src[0], *src[2], out);
        break;
      case Op::kWhere:
        out = *src[1];
        Select(*src[0], *src[1], *src[2], out);
        break;
      case Op::kCast: reference::CastTile(node->src[0]->dtype, node->dtype, *src[0], out); break;
      case Op::kBitcast:
        reference::BitcastTile(node->src[0]->dtype, node->dtype, *src[0], out);
        break;
      default:
        OB_CHECK(IsUnary(node->op) || IsBinary(node->op));
        reference::AluTile(node->op, node->src[0]->dtype, *src[0], *src[src.size() > 1], out);
    }
  }
  return made.at(root);
}

std::vector<const UOp*> LeavesOf(std::vector<const UOp*> roots) {
  std::vector<const UOp*> leaves;
  for (const UOp* node : PostOrder(roots))
    if (IsLeaf(node)) leaves.push_back(node);
  return leaves;
}

Assignment Assign(const std::vector<const UOp*>& leaves, int64_t lanes_max, std::mt19937_64& random,
                  int64_t* lanes) {
  double combinations = 1;
  for (const UOp* leaf : leaves)
    combinations *= IsFloat(leaf->dtype)
                        ? HUGE_VAL
                        : static_cast<double>(leaf->vmax) - static_cast<double>(leaf->vmin) + 1;
  const bool all = combinations <= static_cast<double>(lanes_max);
  *lanes = all ? static_cast<int64_t>(combinations) : lanes_max;
  Assignment assignment;
  int64_t step = 1;
  for (const UOp* leaf : leaves) {
    LaneBlock& tile = assignment[leaf];
    tile.Resize(leaf->dtype, *lanes);
    for (double& value : tile.f) value = RandomFloat(leaf->dtype, random);
    for (int64_t k = 0; k < static_cast<int64_t>(tile.i.size()); ++k)
      tile.i[k] =
          all ? leaf->vmin + k / step % (leaf->vmax - leaf->vmin + 1) : RandomInt(leaf, random);
    if (all) step *= leaf->vmax - leaf->vmin + 1;
  }
  return assignment;
}

std::string Difference(const UOp* before, const UOp* after, int64_t lanes_max,
                       std::mt19937_64& random) {
  if (before->dtype != after->dtype) return "other types";
  const std::vector<const UOp*> leaves = LeavesOf({before, after});
  int64_t lanes;
  const Assignment assignment = Assign(leaves, lanes_max, random, &lanes);
  const LaneBlock a = Evaluate(before, assignment, lanes), b = Evaluate(after, assignment, lanes);
  for (int64_t k = 0; k < lanes; ++k) {
    const bool same = IsFloat(before->dtype)
                          ? (std::isnan(a.f[k]) && std::isnan(b.f[k])) ||
                                std::bit_cast<int64_t>(a.f[k]) == std::bit_cast<int64_t>(b.f[k])
                          : a.i[k] == b.i[k];
    if (same) continue;
    std::string text = IsFloat(before->dtype) ? absl::StrCat(a.f[k], " became ", b.f[k])
                                              : absl::StrCat(a.i[k], " became ", b.i[k]);
    for (const UOp* leaf : leaves) {
      const LaneBlock& tile = assignment.at(leaf);
      absl::StrAppend(&text, ", ", NodeToString(leaf), " = ");
      tile.f.empty() ? absl::StrAppend(&text, tile.i[k]) : absl::StrAppend(&text, tile.f[k]);
    }
    return absl::StrCat(text, "\n  ", std::string(Name(before->dtype)), " ",
                        ExpressionToString(before), "\n  ", ExpressionToString(after));
  }
  return "";
}

const UOp* RandomExpressions::Constant(DType dtype) {
  if (IsFloat(dtype)) return ConstFloat(graph_, dtype, RandomFloat(dtype, random_));
  if (IsBool(dtype)) return ConstInt(graph_, dtype, Below(2));
  switch (Below(4)) {
    case 0: return ConstInt(graph_, dtype, Corner(dtype, random_));
    case 1: return ConstInt(graph_, dtype, WrapTo(dtype, static_cast<int64_t>(random_())));
    default: return ConstInt(graph_, dtype, WrapTo(dtype, Below(26) - 5));
  }
}

// A few leaves of each type, so that the same one is met again: unknown values, and values in a
// known interval.
const UOp* RandomExpressions::Leaf(DType dtype) {
  const int64_t slot = Below(2);
  if (IsFloat(dtype) || IsBool(dtype) || Below(3) == 0)
    return Param(graph_, slot + 2 * static_cast<int64_t>(dtype), dtype, {});
  static constexpr std::pair<int64_t, int64_t> kIntervals[] = {{0, 5},   {0, 30},    {-4, 9},
                                                               {3, 100}, {-100, 20}, {0, 1}};
  const auto [least, most] = kIntervals[Below(std::size(kIntervals))];
  const UOp* const var =
      Var(graph_, slot, IsSigned(dtype) ? least : std::max<int64_t>(least, 0), most);
  return Cast(graph_, var, dtype);
}

const UOp* RandomExpressions::Bool(int depth) {
  static constexpr DType kCompared[] = {DType::kI8,  DType::kU8,   DType::kI64,
                                        DType::kI32, DType::kBool, DType::kF32};
  if (Below(3) == 0) {
    static constexpr Op kOps[] = {Op::kAnd, Op::kOr, Op::kXor};
    return Alu(graph_, kOps[Below(3)], Bool(depth - 1 > 0 ? depth - 1 : 0),
               Make(DType::kBool, depth - 1));
  }
  static constexpr Op kOps[] = {Op::kCmpLt, Op::kCmpEq, Op::kCmpNe, Op::kCmpLt};
  return MakeOp(kOps[Below(4)], DType::kBool, kCompared[Below(std::size(kCompared))], depth);
}

const UOp* RandomExpressions::MakeOp(Op op, DType dtype, DType operands, int depth) {
  const auto source = [&] { return Make(operands, depth - 1); };
  if (op == Op::kWhere) {
    const UOp* const condition = Make(DType::kBool, depth - 1);
    const UOp* const a = source();
    return Where(graph_, condition, a, Below(4) == 0 ? a : source());
  }
  if (op == Op::kCast) return graph_.MakeChecked(op, dtype, {source()});
  if (IsUnary(op)) return Alu(graph_, op, source());
  const UOp* const a = source();
  const bool wants_constant = op == Op::kIDiv || op == Op::kMod || op == Op::kShl || op == Op::kShr;
  const UOp* b = Below(10) == 0                                        ? a
                 : Below(wants_constant ? 5 : 3) > 0 && wants_constant ? Constant(operands)
                                                                       : source();
  return Below(6) == 0 ? Alu(graph_, op, b, a) : Alu(graph_, op, a, b);
}

const UOp* RandomExpressions::Make(DType dtype, int depth) {
  if (depth <= 0) return Below(3) == 0 ? Constant(dtype) : Leaf(dtype);
  if (Below(8) == 0) return Below(2) ? Constant(dtype) : Leaf(dtype);
  if (IsBool(dtype)) {
    const int choice = static_cast<int>(Below(8));
    if (choice == 0) return MakeOp(Op::kCast, dtype, DType::kI8, depth);
    if (choice == 1) return MakeOp(Op::kWhere, dtype, dtype, depth);
    return Bool(depth);
  }
  if (IsFloat(dtype)) {
    static constexpr Op kOps[] = {Op::kAdd,   Op::kMul,  Op::kFDiv,  Op::kMax, Op::kNeg,
                                  Op::kTrunc, Op::kSqrt, Op::kWhere, Op::kCast};
    const Op op = kOps[Below(std::size(kOps))];
    static constexpr DType kFrom[] = {DType::kF16,  DType::kF32, DType::kI32,
                                      DType::kBool, DType::kI8,  DType::kF64};
    return MakeOp(op, dtype, op == Op::kCast ? kFrom[Below(std::size(kFrom))] : dtype, depth);
  }
  static constexpr Op kOps[] = {Op::kAdd,  Op::kAdd, Op::kAdd, Op::kMul, Op::kMul,   Op::kIDiv,
                                Op::kIDiv, Op::kMod, Op::kMod, Op::kMax, Op::kNeg,   Op::kAnd,
                                Op::kOr,   Op::kXor, Op::kShl, Op::kShr, Op::kWhere, Op::kCast};
  const Op op = kOps[Below(std::size(kOps))];
  static constexpr DType kFrom[] = {DType::kI8,  DType::kU8,   DType::kI32, DType::kI64,
                                    DType::kU64, DType::kBool, DType::kU16, DType::kF32};
  return MakeOp(op, dtype, op == Op::kCast ? kFrom[Below(std::size(kFrom))] : dtype, depth);
}

const UOp* RandomExpressions::Index(int depth) {
  static constexpr int64_t kExtents[] = {1, 2, 3, 4, 5, 6, 8, 12};
  if (depth <= 0) {
    const int64_t id = Below(4);
    return graph_.MakeChecked(Op::kRange, DType::kI64, {},
                              {id, kExtents[(id * 3 + Below(2)) % 8], 0});
  }
  const auto number = [&] { return ConstIndex(graph_, 1 + Below(24)); };
  switch (Below(6)) {
    case 0:
    case 1: return Add(graph_, Mul(graph_, Index(depth - 1), number()), Index(depth - 1));
    case 2: return Alu(graph_, Op::kIDiv, Index(depth - 1), number());
    case 3: return Alu(graph_, Op::kMod, Index(depth - 1), number());
    case 4: return Add(graph_, Index(depth - 1), ConstIndex(graph_, Below(30) - 8));
    default:
      return Add(graph_, Index(depth - 1), Mul(graph_, Index(depth - 1), ConstIndex(graph_, -1)));
  }
}

}  // namespace outboard::test
