// Movements on top of hundreds of others: the steps that it takes to lower them, and what they
// compute. Bounds are counts (docs/decisions/224-work-without-a-bound.md).
#include <gtest/gtest.h>

#include <vector>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/limits.h"
#include "compiler/optimize/cost.h"
#include "compiler/rewrite/rewriter.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/schedule/materialize/long_kernels.h"
#include "compiler/schedule/schedule.h"
#include "tests/compiler/schedule_check.h"
#include "tests/compiler/test_targets.h"

namespace outboard::test {
namespace {

// `pairs` of a RESHAPE and a PERMUTE, no two of which are one. `between`: with arithmetic between
// them, which may be stored.
const UOp* Chain(Graph& g, int pairs, bool between) {
  const UOp* x = Param(g, 0, DType::kF32, {6, 10, 15});
  for (int i = 0; i < pairs; ++i) {
    x = Permute(g, Reshape(g, x, {10, 15, 6}), {2, 0, 1});
    if (between) x = Alu(g, Op::kNeg, x);
  }
  return Sink(g, {Alu(g, Op::kSqrt, Mul(g, x, x))});
}

TEST(LongMovements, AreSimplifiedOnce) {
  // All in one kernel, and in several: when each movement simplified all below it again, a pair
  // took a visit of every pair below it, and more.
  constexpr int64_t kVisitsOfAPair = 250;
  for (const int pairs : {100, 300}) {
    Graph g;
    const UOp* const sink = Chain(g, pairs, /*between=*/false);
    const int64_t before = TotalsOfRewrites().visits;
    OB_CHECK_OK(schedule::MakeSchedule(g, sink, TestTarget()).status());
    EXPECT_LE(TotalsOfRewrites().visits - before, kVisitsOfAPair * pairs) << pairs;
  }
}

TEST(LongMovements, BecomeSeveralKernels_ThatComputeTheSame) {
  for (const bool between : {false, true}) {
    Graph g;
    const UOp* const sink = Chain(g, 140, between);
    const auto schedule = ValueOrDie(schedule::MakeSchedule(g, sink, TestTarget()));
    const size_t kernels = 2 * 140 / optimize::kKernelMovementsMax + 1;
    EXPECT_GE(schedule.kernels.size(), kernels) << between;
    EXPECT_LE(schedule.kernels.size(), 2 * kernels) << between;
    ExpectAsInterpreted(sink);
  }
}

// What many movements lead to is read by a sum of more terms than it has elements, or says which
// elements a gather takes. The terms are not stored.
TEST(LongMovements, UnderASum_DoNotStoreItsTerms) {
  constexpr int64_t kWide = 50, kElements = 900;
  const auto rearranged = [](Graph& g, const UOp* x, int pairs) {
    x = Reshape(g, x, {6, 10, 15});
    for (int i = 0; i < pairs; ++i) x = Permute(g, Reshape(g, x, {10, 15, 6}), {2, 0, 1});
    return Expand(g, Reshape(g, x, {1, kElements}), {kWide, kElements});
  };
  const auto expect_small = [](Graph& g, const UOp* sink, int pairs) {
    const auto schedule = ValueOrDie(schedule::MakeSchedule(g, sink, TestTarget()));
    EXPECT_LE(schedule.arena_bytes, 4 * kElements * 8) << pairs;
  };
  for (int pairs = 124; pairs <= 131; ++pairs) {
    Graph g;
    const UOp* const x = rearranged(g, Param(g, 0, DType::kF32, {kElements}), pairs);
    const UOp* const w = Param(g, 1, DType::kF32, {kElements, kWide});
    const UOp* const products = Mul(g, Permute(g, x, {1, 0}), w);
    const UOp* const product = Sink(g, {Reduce(g, Op::kAdd, products, {0})});
    expect_small(g, product, pairs);
    const UOp* const places =
        rearranged(g, g.MakeChecked(Op::kIota, DType::kI64, {}, {kElements}), pairs);
    const UOp* const wanted = Expand(
        g, Reshape(g, Param(g, 0, DType::kI64, {kWide}), {kWide, 1}), {kWide, kElements});
    const UOp* const table =
        Expand(g, Reshape(g, Param(g, 1, DType::kF32, {kElements}), {1, kElements}),
               {kWide, kElements});
    const UOp* const zero = Full(g, ConstFloat(g, DType::kF32, 0), table->shape);
    const UOp* const gather = Sink(
        g, {Reduce(g, Op::kAdd,
                   Alu(g, Op::kWhere, Alu(g, Op::kCmpEq, places, wanted), table, zero), {1})});
    expect_small(g, gather, pairs);
    if (pairs == 130) {
      ExpectAsInterpreted(product);
      ExpectAsInterpreted(gather);
    }
  }
}

// Each movement makes the array longer, so that a stored copy would be larger than its source.
TEST(LongMovements, OfWhatGrows_AreNotCopied) {
  Graph g;
  const UOp* x = Param(g, 0, DType::kF32, {6});
  for (int i = 0; i < 300; ++i) {
    x = Reshape(g, x, {x->shape[0], 1});
    x = Reshape(g, Pad(g, x, {0, 1, 0, 0}), {Dim(x->shape[0].value() + 1)});
    const std::vector<int64_t> axes = {0};
    x = Flip(g, x, axes);
  }
  const auto schedule =
      ValueOrDie(schedule::MakeSchedule(g, Sink(g, {Alu(g, Op::kNeg, x)}), TestTarget()));
  EXPECT_EQ(schedule.kernels.size(), 1u);
}

// Where nothing may be stored, as in the conditions of one-hot sums, each value of a chain counts
// what is below it, up to a length, until there are no steps left.
TEST(LongKernels, WhereNothingMayBeStored_TakeNoMoreThanTheirSteps) {
  Graph g;
  const UOp* x = Param(g, 0, DType::kF32, {6});
  std::vector<const UOp*> order = {x};
  for (int i = 0; i < 50'000; ++i) order.push_back(x = Alu(g, Op::kNeg, x));
  const Target target = TestTarget();
  absl::flat_hash_set<const UOp*> stored = {x};
  constexpr int64_t kSteps = 1 << 20;
  int64_t steps_left = kSteps;
  const auto never = [](const UOp*) { return false; };
  schedule::SplitLongKernels({order, target.costs, INT64_MAX, never, never}, stored, steps_left);
  EXPECT_EQ(stored.size(), 1u);
  EXPECT_LE(steps_left, 0);
  EXPECT_GE(steps_left, -5 * static_cast<int64_t>(optimize::kKernelSizeMax))
      << "the last count may end behind them";
}

// With shared parts, which an estimate counts for each of their readers. Steps or none, no kernel
// is too long.
TEST(LongKernels, WithoutSteps_AreSplitByTheEstimate) {
  for (const int64_t steps : {schedule::kKernelSizeStepsMax, int64_t{0}}) {
    Graph g;
    const UOp* x = Param(g, 0, DType::kF32, {6});
    std::vector<const UOp*> order = {x};
    for (int i = 0; i < 10'000; ++i) order.push_back(x = Alu(g, i % 2 ? Op::kMul : Op::kAdd, x, x));
    const Target target = TestTarget();
    absl::flat_hash_set<const UOp*> stored = {x};
    int64_t steps_left = steps;
    schedule::SplitLongKernels({order, target.costs, INT64_MAX, [](const UOp*) { return false; },
                                [](const UOp*) { return true; }},
                               stored, steps_left);
    EXPECT_GT(stored.size(), 2u) << steps;
    EXPECT_LT(stored.size(), steps > 0 ? 20u : 2000u) << steps;
  }
}

}  // namespace
}  // namespace outboard::test
