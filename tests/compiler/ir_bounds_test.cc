// The bounds of integers hold: random expressions, computed for every value of their variables.
// 8-bit types in full; others near their ends and around zero.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/bounds.h"
#include "compiler/ir/build.h"
#include "compiler/ir/print.h"
#include "compiler/reference/alu.h"

namespace outboard {
namespace {

using reference::LaneBlock;

// Two variables of at most 256 values each, and all pairs of them.
int64_t LengthOf(const UOp* var) { return VarOf(var).max() - VarOf(var).min() + 1; }

struct Variables {
  const UOp* a;
  const UOp* b;

  int64_t count() const { return LengthOf(a) * LengthOf(b); }
  LaneBlock Values(const UOp* var) const {
    LaneBlock tile;
    for (int64_t x = VarOf(a).min(); x <= VarOf(a).max(); ++x)
      for (int64_t y = VarOf(b).min(); y <= VarOf(b).max(); ++y) tile.i.push_back(var == a ? x : y);
    return tile;
  }
};

LaneBlock Compute(const UOp* node, const Variables& variables,
                  std::map<const UOp*, LaneBlock>& known) {
  const auto source = [&](int i) -> const LaneBlock& { return known.at(node->src[i]); };
  LaneBlock out;
  if (node->op == Op::kVar) return variables.Values(node);
  if (node->op == Op::kConst) {
    out.i.assign(variables.count(), node->int_value());
    return out;
  }
  out.Resize(node->dtype, variables.count());
  if (node->op == Op::kCast) {
    reference::CastTile(node->src[0]->dtype, node->dtype, source(0), out);
  } else if (node->op == Op::kWhere) {
    for (size_t i = 0; i < out.i.size(); ++i)
      out.i[i] = source(0).i[i] ? source(1).i[i] : source(2).i[i];
  } else {
    reference::AluTile(node->op, node->src[0]->dtype, source(0),
                       node->src.size() > 1 ? source(1) : source(0), out);
  }
  return out;
}

class BoundsTest : public testing::Test {
 protected:
  // Every node's bounds hold for all values.
  void Check(const UOp* root, const Variables& variables) {
    std::map<const UOp*, LaneBlock> values;
    for (const UOp* node : PostOrder(root)) {
      values[node] = Compute(node, variables, values);
      const auto [low, high] = std::minmax_element(values[node].i.begin(), values[node].i.end());
      if (*low < node->vmin || *high > node->vmax) {
        ADD_FAILURE() << "[" << node->vmin << ", " << node->vmax << "] does not hold [" << *low
                      << ", " << *high << "]\n"
                      << GraphToString(node);
        return;
      }
    }
  }
};

TEST_F(BoundsTest, RandomExpressions) {
  const auto first = static_cast<uint64_t>(GTEST_FLAG_GET(random_seed));
  for (uint64_t seed = first; seed < first + 600; ++seed) {
    SCOPED_TRACE("repeat with --gtest_filter=BoundsTest.RandomExpressions --gtest_random_seed=" +
                 std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto pick = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    Graph g;
    const DType types[] = {DType::kI8, DType::kU8, DType::kU64, DType::kI64, DType::kU32};
    const DType type = types[pick(0, 4)];
    const auto range = [&](int64_t slot) {
      if (ByteWidth(type) > 1) return Var(g, slot, 0, pick(0, 60));  // keeps the pairs few
      const int64_t low = pick(IntMin(type), IntMax(type));
      return Var(g, slot, low, low + pick(0, 60));
    };
    const Variables variables{range(0), range(1)};
    const auto anywhere = [&](const UOp* var) {
      const int64_t corners[] = {INT64_MIN, -40, 0, 3, 1 << 20, IntMax(type) - 30, INT64_MAX - 20};
      return Add(g, Cast(g, var, type), ConstInt(g, type, WrapTo(type, corners[pick(0, 6)])));
    };
    std::vector<const UOp*> pool = {anywhere(variables.a), anywhere(variables.b)};
    std::vector<const UOp*> conditions;
    const auto any = [&] { return pool[pick(0, static_cast<int64_t>(pool.size()) - 1)]; };
    for (int i = 0; i < 10; ++i) {
      const Op ops[] = {Op::kAdd, Op::kMul, Op::kIDiv, Op::kMod, Op::kMax,
                        Op::kAnd, Op::kOr,  Op::kXor,  Op::kShl, Op::kShr};
      switch (pick(0, 5)) {
        case 0:
          pool.push_back(
              ConstInt(g, type, pick(0, 1) ? pick(IntMin(type), IntMax(type)) : pick(0, 9)));
          break;
        case 1: pool.push_back(Alu(g, Op::kNeg, any())); break;
        case 2: {
          const Op compares[] = {Op::kCmpLt, Op::kCmpNe, Op::kCmpEq};
          const UOp* const made = Alu(g, compares[pick(0, 2)], any(), any());
          conditions.push_back(made);
          const Op logic[] = {Op::kAnd, Op::kOr, Op::kXor};
          const UOp* const other = conditions[pick(0, static_cast<int64_t>(conditions.size()) - 1)];
          conditions.push_back(Alu(g, logic[pick(0, 2)], made, other));
          pool.push_back(Where(g, conditions.back(), any(), any()));
          break;
        }
        case 3: pool.push_back(Cast(g, Cast(g, any(), types[pick(0, 4)]), type)); break;
        default: pool.push_back(Alu(g, ops[pick(0, 9)], any(), any()));
      }
    }
    std::vector<const UOp*> roots = pool;
    roots.insert(roots.end(), conditions.begin(), conditions.end());
    for (const UOp* root : roots) Check(root, variables);
    if (HasFailure()) return;
  }
}

// Bounds of the whole type would be sound too: these must be tight.
TEST_F(BoundsTest, KnownBounds) {
  Graph g;
  const auto c = [&](int64_t value) { return ConstIndex(g, value); };
  const auto var = [&](int64_t slot, int64_t low, int64_t high) { return Var(g, slot, low, high); };
  const auto bounds = [](const UOp* node) { return Bounds{node->vmin, node->vmax}; };
  const UOp *const x = var(0, 2, 9), *const y = var(1, -3, 4);
  EXPECT_EQ(bounds(Add(g, x, y)), (Bounds{-1, 13}));
  EXPECT_EQ(bounds(Mul(g, x, y)), (Bounds{-27, 36}));
  EXPECT_EQ(bounds(Alu(g, Op::kNeg, x)), (Bounds{-9, -2}));
  EXPECT_EQ(bounds(Alu(g, Op::kIDiv, x, c(2))), (Bounds{1, 4}));
  EXPECT_EQ(bounds(Alu(g, Op::kMod, x, c(4))), (Bounds{0, 3}));
  EXPECT_EQ(bounds(Alu(g, Op::kMod, x, c(100))), (Bounds{2, 9}));
  EXPECT_EQ(bounds(Alu(g, Op::kMod, y, c(3))), (Bounds{-2, 2}));
  EXPECT_EQ(bounds(Alu(g, Op::kMax, x, y)), (Bounds{2, 9}));
  EXPECT_EQ(bounds(Alu(g, Op::kCmpLt, y, c(5))), (Bounds{1, 1}));
  EXPECT_EQ(bounds(Alu(g, Op::kCmpLt, x, c(2))), (Bounds{0, 0}));
  EXPECT_EQ(bounds(Alu(g, Op::kCmpEq, x, c(1))), (Bounds{0, 0}));
  EXPECT_EQ(bounds(Alu(g, Op::kCmpNe, x, c(1))), (Bounds{1, 1}));
  EXPECT_EQ(bounds(Alu(g, Op::kShl, x, c(3))), (Bounds{16, 72}));
  EXPECT_EQ(bounds(Alu(g, Op::kShr, x, c(1))), (Bounds{1, 4}));
  EXPECT_EQ(bounds(Alu(g, Op::kAnd, x, c(255))), (Bounds{0, 9}));
  EXPECT_EQ(bounds(Cast(g, x, DType::kI8)), (Bounds{2, 9}));
  EXPECT_EQ(bounds(Cast(g, y, DType::kU8)), (Bounds{0, 255}));
  EXPECT_EQ(bounds(Iota(g, DType::kI32, 7)), (Bounds{0, 6}));
  EXPECT_EQ(bounds(Pad(g, Reshape(g, x, {1}), {1, 0})), (Bounds{0, 9}));
  EXPECT_EQ(bounds(Reduce(g, Op::kAdd, Iota(g, DType::kI32, 7), {0})),
            (Bounds{INT32_MIN, INT32_MAX}));
  EXPECT_EQ(bounds(Mul(g, ConstInt(g, DType::kI64, INT64_MAX), x)),
            (Bounds{INT64_MIN, INT64_MAX}));  // may wrap
}

// Counters, hashes and random numbers are u64: within [0, 2^63) their bounds are their values,
// above less 2^64, on both sides nothing.
TEST_F(BoundsTest, KnownBoundsOfU64) {
  Graph g;
  const auto c = [&](uint64_t value) {
    return ConstInt(g, DType::kU64, static_cast<int64_t>(value));
  };
  const auto bounds = [](const UOp* node) { return Bounds{node->vmin, node->vmax}; };
  const Bounds whole = {INT64_MIN, INT64_MAX};
  const UOp* const x = Cast(g, Var(g, 0, 2, 9), DType::kU64);
  const UOp* const any = Param(g, 0, DType::kU64, {});
  EXPECT_EQ(bounds(any), whole);
  EXPECT_EQ(bounds(x), (Bounds{2, 9}));
  EXPECT_EQ(bounds(Add(g, x, c(5))), (Bounds{7, 14}));
  EXPECT_EQ(bounds(Add(g, x, c(UINT64_MAX))), (Bounds{1, 8})) << "x - 1";
  EXPECT_EQ(bounds(Add(g, x, c(UINT64_MAX - 4))), whole) << "x - 5 may wrap";
  EXPECT_EQ(bounds(Mul(g, x, x)), (Bounds{4, 81}));
  EXPECT_EQ(bounds(Mul(g, any, any)), whole);
  EXPECT_EQ(bounds(Alu(g, Op::kNeg, x)), (Bounds{-9, -2})) << "2^64 - 9 to 2^64 - 2";
  EXPECT_EQ(bounds(Alu(g, Op::kIDiv, any, c(2))), (Bounds{0, INT64_MAX}));
  EXPECT_EQ(bounds(Alu(g, Op::kIDiv, Alu(g, Op::kNeg, x), c(uint64_t{1} << 63))), (Bounds{1, 1}));
  EXPECT_EQ(bounds(Alu(g, Op::kMod, any, c(10))), (Bounds{0, 9}));
  EXPECT_EQ(bounds(Alu(g, Op::kShr, any, c(60))), (Bounds{0, 15}));
  EXPECT_EQ(bounds(Alu(g, Op::kShl, x, c(4))), (Bounds{32, 144}));
  EXPECT_EQ(bounds(Alu(g, Op::kAnd, any, c(255))), (Bounds{0, 255}));
  EXPECT_EQ(bounds(Alu(g, Op::kOr, x, c(16))), (Bounds{16, 31}));
  EXPECT_EQ(bounds(Alu(g, Op::kXor, x, c(1))), (Bounds{0, 15}));
  EXPECT_EQ(bounds(Alu(g, Op::kMax, x, c(UINT64_MAX))), (Bounds{-1, -1}));
  EXPECT_EQ(bounds(Alu(g, Op::kCmpLt, x, c(UINT64_MAX))), (Bounds{1, 1}));
  EXPECT_EQ(bounds(Alu(g, Op::kCmpLt, c(UINT64_MAX), x)), (Bounds{0, 0}));
  EXPECT_EQ(bounds(Alu(g, Op::kCmpLt, x, any)), (Bounds{0, 1}));
  EXPECT_EQ(bounds(Cast(g, Alu(g, Op::kMod, any, c(10)), DType::kI8)), (Bounds{0, 9}));
  EXPECT_EQ(bounds(Cast(g, x, DType::kBool)), (Bounds{1, 1}));
  EXPECT_EQ(bounds(Cast(g, any, DType::kI64)), whole);
  EXPECT_EQ(bounds(Cast(g, Alu(g, Op::kNeg, x), DType::kU32)), (Bounds{0, UINT32_MAX}));
  EXPECT_TRUE(HoldsAll(DType::kI64, *x));
  EXPECT_FALSE(HoldsAll(DType::kI64, *any));
  EXPECT_FALSE(HoldsAll(DType::kI64, *Alu(g, Op::kNeg, x)));
  EXPECT_TRUE(HoldsAll(DType::kU64, *any));
}

}  // namespace
}  // namespace outboard
