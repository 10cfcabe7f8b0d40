// Which loops are split at the period of what they index. That values stay the same is shown by
// schedule_golden_test (strided_windows_backward), program_random_test and the operator tables.
#include "compiler/kernel/split_ranges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "compiler/ir/accessors.h"
#include "tests/compiler/kernel_build.h"

namespace outboard::codegen {
namespace {

class SplitRangesTest : public ::testing::Test {
 protected:
  // Each element r of the result adds what is at (r - k + shift) / divisor, for k in 3 places.
  const UOp* WindowGradient(int64_t extent, int64_t divisor, int64_t shift) {
    const UOp *const r = test::Range(g, 0, extent), *const k = test::ReduceRange(g, 1, 3);
    const UOp* const place = Add(g, Add(g, r, Mul(g, k, ConstIndex(g, -1))), ConstIndex(g, shift));
    const UOp* const by = ConstIndex(g, divisor);
    const UOp* const hits = Alu(g, Op::kCmpEq, Alu(g, Op::kMod, place, by), ConstIndex(g, 0));
    const UOp* const value =
        test::GatedLoadAt(g, 1, DType::kF32, extent + shift, Alu(g, Op::kIDiv, place, by), hits,
                          ConstFloat(g, DType::kF32, 0));
    return Sink(g, {test::StoreAt(g, 0, extent, r, test::Fold(g, Op::kAdd, value, {k}))});
  }
  // The extents of a kernel's output ranges, by id.
  static std::vector<int64_t> Outputs(const UOp* sink) {
    std::vector<const UOp*> ranges;
    for (const UOp* node : PostOrder(sink))
      if (IsRange(node, RangeKind::kOutput)) ranges.push_back(node);
    std::sort(ranges.begin(), ranges.end(), HasSmallerId);
    std::vector<int64_t> extents;
    for (const UOp* range : ranges) extents.push_back(RangeOf(range).extent());
    return extents;
  }
  std::vector<int64_t> Split(const UOp* sink) { return Outputs(SplitRanges(g, sink)); }

  Graph g;
};

using Extents = std::vector<int64_t>;

TEST_F(SplitRangesTest, WhatIsDividedWithAnotherIndexIsSplitAtTheDivisor) {
  EXPECT_EQ(Split(WindowGradient(32, 2, 4)), (Extents{16, 2}));
  EXPECT_EQ(Split(WindowGradient(33, 3, 3)), (Extents{11, 3}));
}

// Nodes that no range reaches, too: those of another graph have the same numbers (UOp::index).
TEST_F(SplitRangesTest, TheResultIsOfOneGraph) {
  const UOp* const sink = WindowGradient(32, 2, 4);
  const UOp* const store = sink->src[0];
  const UOp* const rate = test::LoadAt(g, 2, DType::kF32, 4, ConstIndex(g, 3));
  const UOp* const scaled = Sink(
      g, {g.MakeChecked(Op::kStore, DType::kVoid, {store->src[0], Mul(g, store->src[1], rate)})});
  Graph own;
  for (const UOp* node : PostOrder(SplitRanges(own, scaled)))
    EXPECT_EQ(own.MakeChecked(node->op, node->dtype, node->src, node->arg), node);
}

TEST_F(SplitRangesTest, NoDivisionDependsOnTheOuterRangeAnyMore) {
  const UOp* const split = SplitRanges(g, WindowGradient(32, 2, 4));
  int divisions = 0;
  for (const UOp* node : PostOrder(split)) {
    if (node->op != Op::kIDiv && node->op != Op::kMod) continue;
    ++divisions;
    for (const UOp* under : PostOrder(node))
      EXPECT_FALSE(IsRange(under, RangeKind::kOutput) && RangeOf(under).extent() == 16);
  }
  EXPECT_EQ(divisions, 2);
}

TEST_F(SplitRangesTest, ARangeOfAnotherLengthIsNot) {
  EXPECT_EQ(Split(WindowGradient(31, 2, 4)), (Extents{31}));
}

TEST_F(SplitRangesTest, NorAtALargePeriod) {
  EXPECT_EQ(Split(WindowGradient(32, 8, 8)), (Extents{32}));
}

TEST_F(SplitRangesTest, NorWhatIsDividedAlone) {
  const UOp* const r = test::Range(g, 0, 32);
  const UOp* const half = Alu(g, Op::kIDiv, r, ConstIndex(g, 2));
  const UOp* const sink =
      Sink(g, {test::StoreAt(g, 0, 32, r, test::LoadAt(g, 1, DType::kF32, 16, half))});
  EXPECT_EQ(SplitRanges(g, sink), sink);
}

TEST_F(SplitRangesTest, NorOneWithTwoPeriods) {
  const UOp* const both =
      Sink(g, {WindowGradient(12, 2, 4)->src[0], WindowGradient(12, 3, 6)->src[0]});
  EXPECT_EQ(Split(both), (Extents{12}));
}

// Of a gradient by remainders: windows are numbered by r / 2, of which r % 2 reads other elements.
TEST_F(SplitRangesTest, QuotientsBesideTheLoopOfASumAreSplit) {
  const auto with_stride = [&](int64_t stride) {
    const UOp *const r = test::Range(g, 0, 32), *const k = test::ReduceRange(g, 1, 2);
    const UOp *const two = ConstIndex(g, 2), *const by = ConstIndex(g, stride);
    const UOp* const window = Add(g, Mul(g, Alu(g, Op::kIDiv, r, two), by), k);
    const UOp* const element = Add(g, Mul(g, k, two), Alu(g, Op::kMod, r, two));
    const UOp* const product =
        Mul(g, test::LoadAt(g, 1, DType::kF32, 15 * stride + 2, window),
            test::LoadAt(g, 2, DType::kF32, 4, element));
    return Sink(g, {test::StoreAt(g, 0, 32, r, test::Fold(g, Op::kAdd, product, {k}))});
  };
  EXPECT_EQ(Split(with_stride(1)), (Extents{16, 2}));
  EXPECT_EQ(Split(with_stride(2)), (Extents{32}));  // windows that share nothing
}

}  // namespace
}  // namespace outboard::codegen
