// Graphs within the protocol's limits that would cost the gateway far more than their bytes: what
// is looked at of them, and how much memory it takes (docs/decisions/221-hostile-graphs.md).
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/spec.h"
#include "compiler/ir/sums/gather.h"
#include "compiler/shard/choose.h"
#include "compiler/shard/lower.h"
#include "compiler/shard/plan.h"
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

// One body, called with so many layouts of its twelve arguments. `of`: what it makes of their sum.
template <typename Body>
const UOp* CalledWithLayouts(Graph& g, int calls, const Shape& shape, Body of) {
  constexpr int kArguments = 12;
  std::vector<const UOp*> params, function;
  for (int i = 0; i < kArguments; ++i) params.push_back(Param(g, i, DType::kF32, shape));
  const UOp* sum = params[0];
  for (int i = 1; i < kArguments; ++i) sum = Add(g, sum, params[i]);
  function = {of(sum)};
  function.insert(function.end(), params.begin(), params.end());
  const UOp* const made = g.MakeChecked(Op::kFunction, DType::kVoid, function);
  const UOp* all = nullptr;
  for (int call = 0; call < calls; ++call) {
    std::vector<const UOp*> sources = {made};
    for (int i = 0, rest = call; i < kArguments; ++i, rest /= 3)
      sources.push_back(rest % 3 == 2 ? params[i]
                                      : g.MakeChecked(Op::kLayout, DType::kVoid, {params[i]},
                                                      {0, rest % 3}));
    const UOp* const result = g.MakeChecked(Op::kCall, DType::kVoid, sources);
    all = all == nullptr ? result : Add(g, all, result);
  }
  return Sink(g, {all});
}

// What is written for devices of a graph near the limit of nodes is over it: that is the graph's
// error, also where a movement is the node too many.
TEST(HostileGraphs, WrittenForDevicesOverTheLimitOfNodes_AreRefused) {
  Graph g;
  while (g.node_count() < limits::kGraphNodesMax - 20'000) ConstInt(g, DType::kI64, g.node_count());
  const UOp* x = Param(g, 0, DType::kF32, Shape{Dim(64), Dim(4), Dim(9)});
  for (int i = 0; i < 4'500; ++i)
    x = Permute(g, Reshape(g, x, Shape{Dim(64), Dim(4), Dim(9)}), {0, 2, 1});
  const auto sharded = Sharded(g, Sink(g, {Reduce(g, Op::kAdd, x, {1, 2})}));
  EXPECT_TRUE(absl::IsResourceExhausted(sharded.status())) << sharded.status();
  EXPECT_TRUE(absl::StrContains(sharded.status().message(), "written for devices"));
}

// A body that was decoded once is checked again for each way in which it is written.
TEST(HostileGraphs, WrittenForDevicesInManyWays_AreCheckedWithinTheBudget) {
  Graph g;
  const UOp* length = ConstIndex(g, 1);
  for (int64_t slot = 0; slot < 58; ++slot) length = Add(g, length, Var(g, slot, 0, 0));
  const auto body = [&](const UOp* sum) {
    const UOp* x = Reshape(g, Reduce(g, Op::kAdd, sum, {0, 1}), Shape(16, Dim(1)));
    x = Expand(g, x, Shape(16, Dim(length)));
    const UOp* all = nullptr;
    for (int i = 0; i < 100; ++i) {
      x = Add(g, x, x);
      const UOp* const padded =
          g.MakeChecked(Op::kPad, DType::kVoid, {x}, std::vector<int64_t>(32, 1));
      all = all == nullptr ? padded : Add(g, all, padded);
    }
    return all;
  };
  const UOp* const sink = CalledWithLayouts(g, 60, Shape{Dim(64), Dim(64)}, body);
  shard::ShardOptions whole;  // the results' lengths have VARs
  whole.results = {shard::Layout{}};
  const auto sharded = shard::ShardGraph(g, sink, Mesh{.sizes = {4, 2}}, {}, whole);
  EXPECT_TRUE(absl::IsResourceExhausted(sharded.status())) << sharded.status();
  EXPECT_TRUE(absl::StrContains(sharded.status().message(), absl::StrCat(limits::kWalkStepsMax)))
      << sharded.status();
}

TEST(HostileGraphs, PlansOfManyDimensions_AreCounted) {
  Graph g;
  Shape shape(16, Dim(1));
  shape[0] = shape[1] = Dim(64);
  const auto body = [&](const UOp* sum) {
    for (int i = 0; i < 2000; ++i) sum = Alu(g, Op::kNeg, sum);
    return sum;
  };
  const auto sharded = Sharded(g, CalledWithLayouts(g, 600, shape, body));
  EXPECT_TRUE(absl::IsResourceExhausted(sharded.status())) << sharded.status();
  EXPECT_TRUE(
      absl::StrContains(sharded.status().message(), absl::StrCat(limits::kPlannedPartsMax)));
}

// A way to spread a graph costs a plan. Once plans have so many parts, the best of those that were
// made is taken; at least one is.
TEST(HostileGraphs, PlansThatAreCompared_AreCounted) {
  const auto parts_of = [](int64_t most) {
    Graph g;
    const UOp* sum = ConstFloat(g, DType::kF32, 0);
    for (int64_t slot = 0; slot < 40; ++slot) {
      const UOp* x = Param(g, slot, DType::kF32, Shape{Dim(64 + slot), Dim(64)});
      for (int i = 0; i < 10; ++i) x = Alu(g, Op::kNeg, x);
      sum = Add(g, sum, Reshape(g, Reduce(g, Op::kAdd, x, {0, 1}), {}));
    }
    const UOp* const sink = Sink(g, {sum});
    shard::GraphNodes nodes;
    nodes.compared_parts_max = most;
    const Mesh mesh{.sizes = {4, 2}};
    EXPECT_TRUE(shard::Choose(mesh, sink, nodes, {}, {}).ok());
    return std::pair(nodes.compared_parts, nodes.Of(sink).parts);
  };
  const auto [all, once] = parts_of(limits::kComparedPartsMax);
  EXPECT_GT(all, 5 * once);
  EXPECT_EQ(parts_of(0).first, once);
  EXPECT_LT(parts_of(2 * once).first, 4 * once);
}

// A number of bytes that other ways may not need is not said as if no way needed less.
TEST(HostileGraphs, WhereWaysAreLeftOut_NoRoomSaysSo) {
  const auto why = [](int64_t most) {
    Graph g;
    std::vector<const UOp*> results;
    for (int64_t slot = 0; slot < 4; ++slot) {
      const UOp* const x = Param(g, slot, DType::kF32, Shape{Dim(1024), Dim(64)});
      results.push_back(Add(g, x, x));
    }
    shard::GraphNodes nodes;
    nodes.compared_parts_max = most;
    const Mesh mesh{.sizes = {4}};
    const auto chosen =
        shard::Choose(mesh, Sink(g, results), nodes, {}, {.memory = {.bytes = 100}});
    EXPECT_TRUE(absl::IsResourceExhausted(chosen.status())) << chosen.status();
    return std::string(chosen.status().message());
  };
  EXPECT_TRUE(absl::StrContains(why(limits::kComparedPartsMax), "No number of devices"));
  EXPECT_TRUE(absl::StrContains(why(0), "too large to compare")) << why(0);
  EXPECT_FALSE(absl::StrContains(why(0), "No number of devices")) << why(0);
}

// What is told of collectives: of many, the operations' names.
TEST(HostileGraphs, TextsOfCollectives_HaveABound) {
  Graph g;
  const UOp* x = Param(g, 0, DType::kF32, Shape(16, Dim(2)));
  const std::vector<shard::Layout> cut = {{.cut = {0}}};
  constexpr int64_t kSums = 18'000;
  for (int64_t i = 0; i < kSums; ++i)
    x = Add(g, x, Expand(g, Reduce(g, Op::kAdd, x, {0}), x->shape));
  const auto sharded = shard::ShardGraph(g, Sink(g, {x}), Mesh{{2}}, cut, {});
  ASSERT_TRUE(sharded.ok()) << sharded.status();
  const std::vector<shard::CollectiveUse>& uses = sharded->report.collectives;
  ASSERT_GE(uses.size(), size_t{kSums});
  const std::string name(Name(Op::kReduce));
  EXPECT_GT(uses.front().what.size(), name.size());
  EXPECT_EQ(uses.back().what, name);
  size_t bytes = 0;
  for (const shard::CollectiveUse& use : uses) bytes += use.what.size();
  EXPECT_GT(bytes, shard::kUseTextsBytesMax);
  EXPECT_LT(bytes, shard::kUseTextsBytesMax + shard::kUseTextBytesMax + uses.size() * name.size());
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
