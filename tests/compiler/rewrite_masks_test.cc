// Gated loads over ranges and VARs, as padding, shrinking and windows make them: simplified, they
// read the same places, and never one outside of the buffer that the gate does not keep them from.
// Over the whole domain, or 5,000 points of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "compiler/ir/build.h"
#include "compiler/ir/print.h"
#include "compiler/rewrite/simplify.h"
#include "tests/compiler/rewrite_expressions.h"

namespace outboard {
namespace {

constexpr int64_t kPoints = 5000;

class MasksTest : public testing::Test {
 protected:
  int64_t Pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

  // A position along a padded, repeated or strided axis; with a VAR in it every other time.
  const UOp* Place(Graph& g) {
    const UOp* place = test::RandomExpressions(g, random_).Index(static_cast<int>(Pick(1, 3)));
    if (Pick(0, 1)) {
      const UOp* const n = Var(g, Pick(0, 1), Pick(-3, 2), Pick(3, 9));
      place = Add(g, place, Mul(g, n, ConstIndex(g, Pick(1, 4))));
    }
    return Add(g, place, ConstIndex(g, Pick(-9, 5)));
  }

  // The element there, 0 where that is outside; the gate is spelled in one of the usual ways.
  const UOp* Element(Graph& g, const UOp* place, int64_t extent) {
    const auto less = [&](const UOp* a, const UOp* b) { return Alu(g, Op::kCmpLt, a, b); };
    const UOp* const above =
        Pick(0, 1) ? less(ConstIndex(g, -1), place)
                   : Alu(g, Op::kXor, less(place, ConstIndex(g, 0)), ConstInt(g, DType::kBool, 1));
    const UOp* const below = less(place, ConstIndex(g, extent));
    const UOp* const gate = Pick(0, 1) ? Alu(g, Op::kAnd, above, below)
                                       : Where(g, above, below, ConstInt(g, DType::kBool, 0));
    const UOp* const global = g.MakeChecked(Op::kGlobal, DType::kI64, {}, {Pick(0, 1), extent});
    const UOp* const at = g.MakeChecked(Op::kIndex, DType::kVoid, {global, place});
    const UOp* const zero = ConstInt(g, DType::kI64, 0);
    if (Pick(0, 1)) return g.MakeChecked(Op::kLoad, DType::kVoid, {at, gate, zero});
    // A WHERE around a load with half of the gate is the same.
    return Where(g, above, g.MakeChecked(Op::kLoad, DType::kVoid, {at, gate, zero}), zero);
  }

  const uint64_t seed_ = testing::UnitTest::GetInstance()->random_seed();
  const std::string repeat_ = " repeat with --gtest_random_seed=" + std::to_string(seed_);
  std::mt19937_64 random_{seed_};
};

TEST_F(MasksTest, SimplifiedLoadsReadTheSamePlacesAndNoOthers) {
  int64_t gated = 0, without_gate = 0, without_load = 0;
  for (int round = 0; round < 600; ++round) {
    Graph g;
    const UOp* const before =
        Pick(0, 2) ? Element(g, Place(g), Pick(1, 30))
                   : Add(g, Element(g, Place(g), Pick(1, 30)), Element(g, Place(g), Pick(1, 30)));
    const UOp* const after = Simplify(g, before);
    int64_t points;
    test::Assignment leaves =
        test::Assign(test::LeavesOf({before, after}), kPoints, random_, &points);
    absl::erase_if(leaves, [](const auto& leaf) { return leaf.first->op == Op::kGlobal; });
    const std::string text =
        ExpressionToString(before, 2000) + "\nbecame\n" + ExpressionToString(after, 2000) + repeat_;
    ASSERT_EQ(test::Evaluate(before, leaves, points).i, test::Evaluate(after, leaves, points).i)
        << text;
    bool has_load = false;
    for (const UOp* node : PostOrder(after)) {
      if (node->op != Op::kLoad) continue;
      has_load = true;
      ++(node->src.size() == 3 ? gated : without_gate);
      const auto read = test::Evaluate(node, leaves, points).i;
      ASSERT_EQ(std::count(read.begin(), read.end(), test::kNowhere), 0) << text;
    }
    without_load += !has_load;
  }
  // All three happen, or this says little.
  EXPECT_GT(gated, 50);
  EXPECT_GT(without_gate, 50);
  EXPECT_GT(without_load, 5);
}

// What bounds alone must decide.
TEST_F(MasksTest, GatesThatAlwaysOrNeverHoldAreGone) {
  Graph g;
  const UOp* const n = Var(g, 0, 1, 8);
  const UOp* const r = g.MakeChecked(Op::kRange, DType::kI64, {}, {0, 4, 0});
  const UOp* const place = Add(g, r, n);  // 1 to 11
  const UOp* const inside = Simplify(g, Element(g, place, 12));
  EXPECT_EQ(inside->op, Op::kLoad);
  EXPECT_EQ(inside->src.size(), 1u) << ExpressionToString(inside);
  const UOp* const outside = Simplify(g, Element(g, Add(g, place, ConstIndex(g, -12)), 12));
  EXPECT_TRUE(outside->IsIntConst(0)) << ExpressionToString(outside);
}

}  // namespace
}  // namespace outboard
