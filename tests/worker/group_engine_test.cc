// Engines of a group, each a rank in a thread of its own, against the interpreter for groups.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/limits.h"
#include "compiler/reference/interpret_group.h"
#include "tests/support/device.h"
#include "tests/worker/engine_group.h"
#include "worker/engine/repeat.h"

namespace outboard::worker {
namespace {

TEST(GroupEngines, EveryCollective_HasTheInterpretersBits) {
  for (const bool reference : {false, true})
    for (const std::vector<int64_t>& mesh :
         std::vector<std::vector<int64_t>>{{1}, {2}, {3}, {2, 2}, {2, 3}}) {
      Group group(mesh, reference);
      ExpectEveryCollectiveAsInterpreted(group);
    }
}

// Over the size from which an ALLREDUCE is done in parts.
TEST(GroupEngines, LargeFolds_HaveTheInterpretersBits) {
  Group group({3});
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Graph g;
    const UOp* const x = Param(g, 0, dtype, Shape{7, 4699});
    group.ExpectAsInterpreted(Sink(g, {Make(g, Op::kAllReduce, x, {kAdd, 3, 1})}),
                              ParamsFor(group, dtype, {7, 4699}, 1, 3));
  }
}

// Graphs of integers with collectives everywhere: what is fused, ordered and placed in memory
// around them must not change one bit.
const UOp* RandomGraph(Graph& g, std::mt19937_64& random, const std::vector<int64_t>& mesh) {
  const auto below = [&](size_t n) { return static_cast<int64_t>(random() % n); };
  int64_t ranks = 1;
  for (const int64_t size : mesh) ranks *= size;
  const Shape shape = {12, 6};
  std::vector<const UOp*> pool;
  for (int64_t slot = 0; slot < 3; ++slot) pool.push_back(Param(g, slot, DType::kI32, shape));
  const auto pick = [&] { return pool[static_cast<size_t>(below(pool.size()))]; };
  for (int i = 0; i < 14; ++i) {
    const size_t axis = static_cast<size_t>(below(mesh.size()));
    const int64_t count = mesh[axis];
    int64_t stride = 1;
    for (size_t inner = axis + 1; inner < mesh.size(); ++inner) stride *= mesh[inner];
    const int64_t dim = below(2);
    const UOp* const x = pick();
    switch (below(12)) {
      case 0:
        pool.push_back(Make(g, Op::kAllReduce, x, {below(2) ? kAdd : kMax, count, stride}));
        break;
      case 1:
        pool.push_back(Make(g, Op::kUnshard,
                            Make(g, Op::kReduceScatter, x, {kAdd, dim, count, stride}),
                            {dim, count, stride}));
        break;
      case 2: pool.push_back(Make(g, Op::kAllToAll, x, {dim, dim, count, stride})); break;
      case 3:
        pool.push_back(Reshape(g, Make(g, Op::kAllToAll, x, {dim, 1 - dim, count, stride}), shape));
        break;
      case 4: pool.push_back(Make(g, Op::kCopy, x, {below(count), count, stride})); break;
      case 5: {  // its own slice, of all ranks
        const int64_t part = 12 / ranks;
        const UOp* const begin = Mul(g, Rank(g, ranks), ConstIndex(g, part));
        const UOp* const mine =
            Shrink(g, x, Shape{Dim(begin), Dim(Add(g, begin, ConstIndex(g, part))), 0, 6});
        pool.push_back(Make(g, Op::kUnshard, mine, {0, ranks, 1}));
        break;
      }
      case 6: pool.push_back(Expand(g, Reduce(g, Op::kAdd, x, {dim}), shape)); break;
      case 7:
        pool.push_back(Expand(
            g, Make(g, Op::kAllReduce, Reduce(g, Op::kAdd, x, {0, 1}), {kAdd, count, stride}),
            shape));
        break;
      case 8: pool.push_back(Flip(g, x, {dim})); break;
      case 9: pool.push_back(Make(g, Op::kContiguous, Add(g, x, pick()))); break;
      default: pool.push_back(Alu(g, below(2) ? Op::kAdd : Op::kMul, x, pick()));
    }
  }
  std::vector<const UOp*> results;
  for (int i = 0; i < 3; ++i) results.push_back(pick());
  results.push_back(pool.back());
  // Every input is read, so that slots are 0, 1, 2.
  results.push_back(Add(g, pool[0], Add(g, pool[1], pool[2])));
  return Sink(g, results);
}

TEST(GroupEngines, RandomGraphs_HaveTheInterpretersBits) {
  const char* const wanted = std::getenv("OUTBOARD_RANDOM_GRAPHS");
  const int graphs = wanted != nullptr ? std::atoi(wanted) : 20;
  for (const std::vector<int64_t>& mesh :
       std::vector<std::vector<int64_t>>{{2}, {3}, {2, 2}, {2, 3}}) {
    Group group(mesh);
    for (int seed = 0; seed < graphs; ++seed) {
      SCOPED_TRACE(absl::StrCat("mesh ", absl::StrJoin(mesh, "x"), ", seed ", seed));
      std::mt19937_64 random(static_cast<unsigned>(seed));
      Graph g;
      const UOp* const sink = RandomGraph(g, random, mesh);
      const std::vector<int64_t> donated =
          seed % 2 == 0 ? std::vector<int64_t>{} : std::vector<int64_t>{0, 1, 2};
      group.ExpectAsInterpreted(sink, ParamsFor(group, DType::kI32, {12, 6}, 3, seed), {}, donated);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(GroupEngines, OnePlan_ServesEveryRunAndBinding) {
  Group group({2});
  Graph g;
  const Dim n(Var(g, 0, 1, 9));
  const UOp* const x = Param(g, 0, DType::kI32, Shape{n, 4});
  const UOp* const sink = Sink(g, {Make(g, Op::kAllReduce, Add(g, x, x), {kAdd, 2, 1}),
                                   Make(g, Op::kUnshard, x, {1, 2, 1})});
  for (const int64_t length : {1, 5, 9, 5}) {
    const Binding binding{0, length};
    group.ExpectAsInterpreted(sink, ParamsFor(group, DType::kI32, {length, 4}, 1, length),
                              {&binding, 1});
  }
  for (size_t rank = 0; rank < 2; ++rank) EXPECT_EQ(group.engine(rank).stats().plans_made, 1u);
}

TEST(GroupEngines, Repetitions_CarryThroughCollectives) {
  // w <- sum over ranks of (w + x), 5 times.
  for (const bool reference : {false, true}) {
    Group group({2}, reference);
    Graph g;
    const UOp *const w = Param(g, 0, DType::kI32, Shape{100}), *const x = Param(g, 1, DType::kI32,
                                                                                Shape{100});
    const UOp* const sink = Sink(g, {Make(g, Op::kAllReduce, Add(g, w, x), {kAdd, 2, 1})});
    GroupTensors params = ParamsFor(group, DType::kI32, {100}, 2, 5);
    params[1][0] = params[0][0];
    GroupTensors wanted = params;
    for (int i = 0; i < 5; ++i) {
      const auto next = InterpretGroup(sink, group.mesh(), wanted);
      ASSERT_TRUE(next.ok()) << next.status();
      for (size_t rank = 0; rank < 2; ++rank) wanted[rank][0] = (*next)[rank][0];
    }
    Repeat repeat;
    repeat.count = 5;
    repeat.carry = {{0, 0}};
    group.OnAll([&](size_t rank) {
      const auto made = group.engine(rank).ExecuteRepeated(
          EncodeGraph(sink)->id, sink, group.Upload(rank, params[rank]), {}, repeat, [] {});
      ASSERT_TRUE(made.ok()) << made.status();
      EXPECT_EQ(test::BytesOf(*(*made)[0]), wanted[rank][0].bytes);
    });
  }
}

TEST(GroupEngines, ARankThatCannotPlan_IsSaidByAllAndTheGroupGoesOn) {
  Group group({3});
  Graph g;
  const UOp* const x = Param(g, 0, DType::kI32, Shape{10});
  const UOp* const sink = Sink(g, {Make(g, Op::kAllReduce, Add(g, x, x), {kAdd, 3, 1})});
  const GroupTensors params = ParamsFor(group, DType::kI32, {10}, 1, 1);
  group.compiler(1).refuse = true;
  GroupTensors results;
  const std::vector<absl::Status> statuses = group.Run(sink, params, results);
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(statuses[rank].code(), absl::StatusCode::kResourceExhausted) << statuses[rank];
    EXPECT_TRUE(absl::StrContains(statuses[rank].message(), "the compiler is full"));
    EXPECT_EQ(absl::StrContains(statuses[rank].message(), "rank 1"), rank != 1) << statuses[rank];
  }
  group.compiler(1).refuse = false;
  group.ExpectAsInterpreted(sink, params);
}

// What one rank's snapshot holds is given back before the Run launches anything; the other rank
// notices nothing.
TEST(GroupEngines, ARankWithoutRoom_MakesSomeBeforeItBegins) {
  Group group({2});
  Graph g;
  constexpr int64_t kNumbers = 1 << 21;
  const UOp* const x = Param(g, 0, DType::kI32, Shape{kNumbers});
  const UOp* const sink = Sink(g, {Make(g, Op::kAllReduce, Add(g, x, x), {kAdd, 2, 1})});
  const GroupTensors params = ParamsFor(group, DType::kI32, {kNumbers}, 1, 1);
  GroupTensors results;
  for (const absl::Status& status : group.Run(sink, params, results)) ASSERT_TRUE(status.ok());
  const GroupTensors expected = results;
  std::vector<std::shared_ptr<DeviceArray>> held;  // until there is no more
  for (;;) {
    auto array = group.engine(1).NewArray(DType::kI32, {kNumbers / 8});
    if (!array.ok()) break;
    held.push_back(*std::move(array));
  }
  held.resize(held.size() - 9);  // room for the input alone
  bool asked = false;
  group.engine(1).SetMakeRoom([&] {
    asked = true;
    held.clear();
  });
  for (const absl::Status& status : group.Run(sink, params, results))
    EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(asked);
  EXPECT_EQ(results, expected);
}

TEST(GroupEngines, AnAbortedCollective_FreesAllWithOneCause) {
  for (const bool reference : {false, true}) {
    Group group({3}, reference);
    Graph g;
    const UOp* const x = Param(g, 0, DType::kI32, Shape{10});
    const UOp* const sink = Sink(g, {Make(g, Op::kAllReduce, x, {kAdd, 3, 1})});
    const GroupTensors params = ParamsFor(group, DType::kI32, {10}, 1, 1);
    group.ExpectAsInterpreted(sink, params);
    std::vector<absl::Status> statuses(3);
    group.OnAll([&](size_t rank) {
      if (rank == 1) {
        group.engine(1).group()->Abort(absl::InternalError("its device has failed"));
        return;
      }
      statuses[rank] =
          group.engine(rank)
              .Execute(EncodeGraph(sink)->id, sink, group.Upload(rank, params[rank]), {})
              .status();
    });
    for (const size_t rank : {0, 2}) {
      EXPECT_EQ(statuses[rank].code(), absl::StatusCode::kUnavailable) << statuses[rank];
      EXPECT_TRUE(absl::StrContains(statuses[rank].message(), "rank 1")) << statuses[rank];
      EXPECT_TRUE(absl::StrContains(statuses[rank].message(), "its device has failed"));
    }
    // Nothing goes on in an ended group, also what needs no partner.
    const UOp* const alone = Sink(g, {Add(g, x, x)});
    GroupTensors results;
    for (const absl::Status& status : group.Run(alone, params, results))
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    group.Renew(2);
    group.ExpectAsInterpreted(sink, params);
    group.ExpectAsInterpreted(alone, params);
  }
}

TEST(GroupEngines, TheRank_IsNotForARunToBind) {
  Group group({2});
  Graph g;
  const UOp* const x = Param(g, 0, DType::kI64, Shape{});
  const UOp* const sink = Sink(g, {Add(g, x, Rank(g, 2))});
  const GroupTensors params = {{Random(DType::kI64, {}, 1)}, {Random(DType::kI64, {}, 1)}};
  group.ExpectAsInterpreted(sink, params);
  const Binding binding{limits::kRankSlot, 0};
  GroupTensors results;
  for (const absl::Status& status : group.Run(sink, params, results, {&binding, 1}))
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

TEST(GroupEngines, AGraphForAGroup_OnOneDeviceAloneIsRefused) {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kI32, Shape{10});
  const UOp* const sink = Sink(g, {Make(g, Op::kAllReduce, x, {kAdd, 2, 1})});
  MoodyCompiler compiler;
  for (const auto& engine : {MakeCompiledEngine(&compiler, test::MakeDevice(1 << 26, 1), {}),
                             MakeReferenceEngine(test::MakeDevice(1 << 26, 1))}) {
    const auto array = ValueOrDie(engine->NewArray(DType::kI32, {10}));
    EXPECT_FALSE(engine->Execute(EncodeGraph(sink)->id, sink, {array}, {}).ok());
  }
}

}  // namespace
}  // namespace outboard::worker
