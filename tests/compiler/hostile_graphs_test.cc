// Graphs within the protocol's limits that would cost the gateway far more than their bytes: what
// is looked at of them, and how much memory it takes (docs/decisions/221-hostile-graphs.md).
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/spec.h"
#include "compiler/ir/sums/gather.h"
#include "compiler/shard/products.h"
#include "compiler/shard/shard.h"

namespace outboard::test {
namespace {

using shard::Mesh;

absl::StatusOr<shard::ShardedGraph> Sharded(Graph& g, const UOp* sink) {
  return shard::ShardGraph(g, sink, Mesh{.sizes = {4, 2}}, {}, {});
}

// Of the process, so far.
int64_t PeakBytes() {
  rusage usage;
  OB_CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
  return usage.ru_maxrss * int64_t{1024};
}

// Rows of what a function makes, by an index: the value that the rows are read from is of a body,
// which is no part of the graph around the call.
TEST(HostileGraphs, RowsOfACallWithoutArguments_AreNoPartOfTheBody) {
  Graph g;
  const Shape square{Dim(64), Dim(64)};
  const UOp* const body = Full(g, ConstFloat(g, DType::kF32, 3), square);
  const UOp* const call = g.MakeChecked(
      Op::kCall, DType::kVoid, {g.MakeChecked(Op::kFunction, DType::kVoid, {body})});
  const UOp* const places =
      Expand(g, Reshape(g, Iota(g, DType::kI32, Dim(64)), Shape{Dim(1), Dim(64)}), square);
  const UOp* const index =
      Expand(g, Reshape(g, Param(g, 0, DType::kI32, Shape{Dim(64)}), Shape{Dim(64), Dim(1)}),
             square);
  const UOp* const rows = Where(g, Alu(g, Op::kCmpEq, places, index), call,
                                Full(g, ConstFloat(g, DType::kF32, 0), square));
  const UOp* const sum = Reduce(g, Op::kAdd, rows, {1});
  EXPECT_TRUE(IsGather(sum));
  EXPECT_EQ(shard::ValueUnder(call), nullptr);
  const auto sharded = Sharded(g, Sink(g, {sum}));
  EXPECT_TRUE(sharded.ok()) << sharded.status();
}

// Each length could be the batch. With a candidate for each, of all inputs, this took 3 GB.
TEST(HostileGraphs, InputsOfManyLengths_TakeLittleMemory) {
  constexpr int64_t kInputs = 4000, kBytesMax = int64_t{700} << 20;
  Graph g;
  const UOp* sum = ConstFloat(g, DType::kF32, 0);
  for (int64_t slot = 0; slot < kInputs; ++slot)
    sum = Add(g, sum,
              Reshape(g, Reduce(g, Op::kAdd, Param(g, slot, DType::kF32, {slot + 64}), {0}), {}));
  const int64_t before = PeakBytes();
  const auto sharded = Sharded(g, Sink(g, {sum}));
  EXPECT_TRUE(sharded.ok()) << sharded.status();
  EXPECT_LT(PeakBytes() - before, kBytesMax);
}

// A look at a few nodes is a look at a few nodes: else n sums over a chain of n cost n squared.
TEST(HostileGraphs, LongChains_AreNotWalked) {
  Graph g;
  const Shape square{Dim(8), Dim(8)};
  const auto chain = [&](const UOp* x, int length) {
    for (int i = 0; i < length; ++i) x = Alu(g, Op::kNeg, x);
    return x;
  };
  const UOp* const param = Param(g, 0, DType::kF32, square);
  EXPECT_EQ(shard::ParamUnder(chain(param, 50)), param);
  EXPECT_EQ(shard::ParamUnder(chain(param, 100)), nullptr);

  const UOp* const places =
      Expand(g, Reshape(g, Iota(g, DType::kI32, Dim(8)), Shape{Dim(1), Dim(8)}), square);
  const UOp* const hot = Where(g, Alu(g, Op::kCmpEq, places, Param(g, 1, DType::kI32, square)),
                               param, Full(g, ConstFloat(g, DType::kF32, 0), square));
  EXPECT_TRUE(IsGather(Reduce(g, Op::kAdd, chain(hot, 50), {1})));
  EXPECT_FALSE(IsGather(Reduce(g, Op::kAdd, chain(hot, 100), {1})));
}

TEST(HostileGraphs, ManyHintsOnOneValue_AreRefused) {
  Graph g;
  const auto sharded = [&](int hints) {
    const UOp* x = Param(g, 0, DType::kF32, Shape{Dim(64), Dim(64)});
    for (int i = 0; i < hints; ++i) {
      x = g.MakeChecked(Op::kLayout, DType::kVoid, {x}, {1, -1});
      x = g.MakeChecked(Op::kLayout, DType::kVoid, {x}, {i % 2, -1});
    }
    return Sharded(g, Sink(g, {g.MakeChecked(Op::kLayout, DType::kVoid, {x}, {0, 0})}));
  };
  EXPECT_TRUE(sharded(1).ok()) << sharded(1).status();
  Graph deep;
  const UOp* x = Param(deep, 0, DType::kF32, Shape{Dim(64), Dim(64)});
  for (int i = 0; i <= limits::kLayoutsTogetherMax; ++i)
    x = deep.MakeChecked(Op::kLayout, DType::kVoid, {x}, {1, -1});
  const auto refused =
      Sharded(deep, Sink(deep, {deep.MakeChecked(Op::kLayout, DType::kVoid, {x}, {0, 0})}));
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status())) << refused.status();
  EXPECT_TRUE(absl::StrContains(refused.status().message(), "hints on top of each other"));
}

// A program that builds its own graph has no limit of steps. Each decoding of a graph has one.
TEST(HostileGraphs, WalksAreCounted_WhereAGraphIsDecoded) {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kF32, Shape{Dim(4)});
  const UOp* body = x;
  for (int i = 0; i < 1000; ++i) body = Alu(g, Op::kNeg, body);
  const UOp* sum = x;
  for (int i = 0; i < 3000; ++i) {
    const UOp* const own = Add(g, body, Expand(g, Reshape(g, ConstFloat(g, DType::kF32, i), {1}),
                                               Shape{Dim(4)}));
    sum = g.MakeChecked(Op::kCall, DType::kVoid,
                        {g.MakeChecked(Op::kFunction, DType::kVoid, {own, x}), sum});
  }
  const auto encoded = EncodeGraph(Sink(g, {sum}));
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  Graph decoded;
  const auto refused = DecodeGraph(decoded, encoded->bytes, Level::kTensor);
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status())) << refused.status();
  EXPECT_GT(decoded.walk_budget, limits::kWalkStepsMax);  // as before
}

// A value of its source's shape has its source's memory for it.
TEST(HostileGraphs, ShapesOfSources_AreShared) {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kF32, Shape(16, Dim(1)));
  const UOp* const y = Add(g, x, x);
  EXPECT_EQ(y->shape.data(), x->shape.data());
}

}  // namespace
}  // namespace outboard::test
