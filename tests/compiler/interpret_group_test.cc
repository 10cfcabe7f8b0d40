// The interpreter for a group of ranks: every collective by hand on small meshes, and what is
// refused.
#include "compiler/reference/interpret_group.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/build.h"
#include "compiler/ir/limits.h"
#include "tests/compiler/harness.h"

namespace outboard::test {
namespace {

using GroupResults = std::vector<std::vector<HostTensor>>;
using Numbers = std::vector<int64_t>;

constexpr int64_t kAdd = static_cast<int64_t>(Op::kAdd), kMul = static_cast<int64_t>(Op::kMul),
                  kMax = static_cast<int64_t>(Op::kMax);

const UOp* Make(Graph& g, Op op, const UOp* x, std::vector<int64_t> arg) {
  return g.MakeChecked(op, DType::kVoid, {x}, arg);
}
const UOp* Rank(Graph& g, int64_t ranks) { return Var(g, limits::kRankSlot, 0, ranks - 1); }

// The values of one collective over PARAM 0, by rank; values[r] is what rank r holds.
std::vector<Numbers> Collective(Op op, std::vector<int64_t> arg, const std::vector<int64_t>& mesh,
                                const std::vector<int64_t>& dims,
                                const std::vector<Numbers>& values,
                                std::vector<int64_t>* result_dims = nullptr) {
  Graph g;
  Shape shape(dims.begin(), dims.end());
  const UOp* const sink = Sink(g, {Make(g, op, Param(g, 0, DType::kI32, shape), std::move(arg))});
  std::vector<std::vector<HostTensor>> params;
  for (const Numbers& mine : values) params.push_back({Ints(DType::kI32, dims, mine)});
  const absl::StatusOr<GroupResults> results = InterpretGroup(sink, mesh, params);
  EXPECT_TRUE(results.ok()) << results.status();
  std::vector<Numbers> out;
  if (!results.ok()) return out;
  for (const auto& mine : *results) {
    out.push_back(IntsOf(mine[0]));
    if (result_dims != nullptr) *result_dims = mine[0].dims;
  }
  return out;
}

// ---- each collective ----------------------------------------------------------------------------

TEST(Unshard, AlongTheFirstDimension_JoinsInOrder) {
  std::vector<int64_t> dims;
  EXPECT_EQ(Collective(Op::kUnshard, {0, 3, 1}, {3}, {2}, {{1, 2}, {3, 4}, {5, 6}}, &dims),
            (std::vector<Numbers>(3, {1, 2, 3, 4, 5, 6})));
  EXPECT_EQ(dims, (std::vector<int64_t>{6}));
}

TEST(Unshard, AlongAnInnerDimension_InterleavesRows) {
  std::vector<int64_t> dims;
  EXPECT_EQ(Collective(Op::kUnshard, {1, 2, 1}, {2}, {2, 2}, {{1, 2, 3, 4}, {5, 6, 7, 8}}, &dims),
            (std::vector<Numbers>(2, {1, 2, 5, 6, 3, 4, 7, 8})));
  EXPECT_EQ(dims, (std::vector<int64_t>{2, 4}));
}

TEST(Unshard, OverOneAxisOfTwo_StaysWithinItsGroups) {
  const std::vector<Numbers> ranks = {{0}, {1}, {2}, {3}, {4}, {5}};  // 2 x 3, the last one fastest
  EXPECT_EQ(
      Collective(Op::kUnshard, {0, 3, 1}, {2, 3}, {1}, ranks),
      (std::vector<Numbers>{{0, 1, 2}, {0, 1, 2}, {0, 1, 2}, {3, 4, 5}, {3, 4, 5}, {3, 4, 5}}));
  EXPECT_EQ(Collective(Op::kUnshard, {0, 2, 3}, {2, 3}, {1}, ranks),
            (std::vector<Numbers>{{0, 3}, {1, 4}, {2, 5}, {0, 3}, {1, 4}, {2, 5}}));
  EXPECT_EQ(Collective(Op::kUnshard, {0, 6, 1}, {2, 3}, {1}, ranks),  // both axes at once
            (std::vector<Numbers>(6, {0, 1, 2, 3, 4, 5})));
}

TEST(AllReduce, EachOperation_FoldsTheWholeGroup) {
  const std::vector<Numbers> ranks = {{2, -7}, {5, 3}, {-3, 3}};
  EXPECT_EQ(Collective(Op::kAllReduce, {kAdd, 3, 1}, {3}, {2}, ranks),
            (std::vector<Numbers>(3, {4, -1})));
  EXPECT_EQ(Collective(Op::kAllReduce, {kMul, 3, 1}, {3}, {2}, ranks),
            (std::vector<Numbers>(3, {-30, -63})));
  EXPECT_EQ(Collective(Op::kAllReduce, {kMax, 3, 1}, {3}, {2}, ranks),
            (std::vector<Numbers>(3, {5, 3})));
}

TEST(AllReduce, OnTwoByTwo_FoldsOneAxisAlone) {
  const std::vector<Numbers> ranks = {{1}, {10}, {100}, {1000}};
  EXPECT_EQ(Collective(Op::kAllReduce, {kAdd, 2, 1}, {2, 2}, {1}, ranks),
            (std::vector<Numbers>{{11}, {11}, {1100}, {1100}}));
  EXPECT_EQ(Collective(Op::kAllReduce, {kAdd, 2, 2}, {2, 2}, {1}, ranks),
            (std::vector<Numbers>{{101}, {1010}, {101}, {1010}}));
}

TEST(AllReduce, OfIntegers_Wraps) {
  const Numbers most = {std::numeric_limits<int32_t>::max()};
  EXPECT_EQ(Collective(Op::kAllReduce, {kAdd, 2, 1}, {2}, {1}, {most, {1}}),
            (std::vector<Numbers>(2, {std::numeric_limits<int32_t>::min()})));
}

TEST(ReduceScatter, GivesEachItsSlice) {
  std::vector<int64_t> dims;
  EXPECT_EQ(Collective(Op::kReduceScatter, {kAdd, 1, 2, 1}, {2}, {2, 4},
                       {{1, 2, 3, 4, 5, 6, 7, 8}, {10, 20, 30, 40, 50, 60, 70, 80}}, &dims),
            (std::vector<Numbers>{{11, 22, 55, 66}, {33, 44, 77, 88}}));
  EXPECT_EQ(dims, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(
      Collective(Op::kReduceScatter, {kMax, 0, 3, 1}, {3}, {3}, {{1, 9, 2}, {4, 4, 4}, {0, 5, 6}}),
      (std::vector<Numbers>{{4}, {9}, {6}}));
}

TEST(AllToAll, OfOneDimension_ExchangesParts) {
  EXPECT_EQ(
      Collective(Op::kAllToAll, {0, 0, 3, 1}, {3}, {3}, {{0, 1, 2}, {10, 11, 12}, {20, 21, 22}}),
      (std::vector<Numbers>{{0, 10, 20}, {1, 11, 21}, {2, 12, 22}}));
}

TEST(AllToAll, BetweenDimensions_MovesTheCut) {
  std::vector<int64_t> dims;
  // The columns of a 2x4 whole are on two ranks; afterwards its rows are.
  EXPECT_EQ(
      Collective(Op::kAllToAll, {0, 1, 2, 1}, {2}, {2, 2}, {{1, 2, 5, 6}, {3, 4, 7, 8}}, &dims),
      (std::vector<Numbers>{{1, 2, 3, 4}, {5, 6, 7, 8}}));
  EXPECT_EQ(dims, (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(Collective(Op::kAllToAll, {1, 0, 2, 1}, {2}, {1, 4}, {{1, 2, 3, 4}, {5, 6, 7, 8}}),
            (std::vector<Numbers>{{1, 2, 5, 6}, {3, 4, 7, 8}}));
}

TEST(Copy, GivesTheRootsValueToItsGroup) {
  const std::vector<Numbers> ranks = {{0}, {1}, {2}, {3}, {4}, {5}};
  EXPECT_EQ(Collective(Op::kCopy, {2, 3, 1}, {2, 3}, {1}, ranks),
            (std::vector<Numbers>{{2}, {2}, {2}, {5}, {5}, {5}}));
  EXPECT_EQ(Collective(Op::kCopy, {1, 2, 3}, {2, 3}, {1}, ranks),
            (std::vector<Numbers>{{3}, {4}, {5}, {3}, {4}, {5}}));
}

TEST(Groups, OfOneRank_ChangeNothing) {
  for (const auto& [op, arg] :
       std::vector<std::pair<Op, std::vector<int64_t>>>{{Op::kUnshard, {0, 1, 1}},
                                                        {Op::kReduceScatter, {kAdd, 0, 1, 1}},
                                                        {Op::kAllReduce, {kAdd, 1, 1}},
                                                        {Op::kAllToAll, {0, 0, 1, 1}},
                                                        {Op::kCopy, {0, 1, 1}}})
    EXPECT_EQ(Collective(op, arg, {2}, {2}, {{1, 2}, {3, 4}}),
              (std::vector<Numbers>{{1, 2}, {3, 4}}));
}

TEST(Groups, WithoutElements_GiveNone) {
  EXPECT_EQ(Collective(Op::kUnshard, {0, 2, 1}, {2}, {0}, {{}, {}}), (std::vector<Numbers>(2)));
  EXPECT_EQ(Collective(Op::kAllReduce, {kAdd, 2, 1}, {2}, {0}, {{}, {}}),
            (std::vector<Numbers>(2)));
}

// ---- the bits of a fold -------------------------------------------------------------------------

std::vector<double> FoldOf(DType dtype, Op op, const std::vector<double>& values) {
  Graph g;
  const auto ranks = static_cast<int64_t>(values.size());
  const UOp* const sink = Sink(g, {Make(g, Op::kAllReduce, Param(g, 0, dtype, Shape{1}),
                                        {static_cast<int64_t>(op), ranks, 1})});
  std::vector<std::vector<HostTensor>> params;
  for (const double value : values) params.push_back({Floats(dtype, {1}, {value})});
  const absl::StatusOr<GroupResults> results = InterpretGroup(sink, {&ranks, 1}, params);
  EXPECT_TRUE(results.ok()) << results.status();
  std::vector<double> out;
  if (results.ok())
    for (const auto& mine : *results) out.push_back(FloatsOf(mine[0])[0]);
  return out;
}

TEST(Folds, OfF32_RoundAfterEachStepInOrder) {
  // 2^24 + 1 is 2^24 in f32, twice; one after the other, or 2 at once, differ.
  EXPECT_EQ(FoldOf(DType::kF32, Op::kAdd, {16777216, 1, 1}), std::vector<double>(3, 16777216));
  EXPECT_EQ(FoldOf(DType::kF32, Op::kAdd, {1, 1, 16777216}), std::vector<double>(3, 16777218));
  EXPECT_EQ(FoldOf(DType::kF32, Op::kAdd, {1e30, 1, -1e30}), std::vector<double>(3, 0));
}

TEST(Folds, OfNarrowFloats_AreOfF32AndRoundOnce) {
  // 256 + 1 + 1 in bf16 steps stays 256; in f32 it is 258.
  EXPECT_EQ(FoldOf(DType::kBF16, Op::kAdd, {256, 1, 1}), std::vector<double>(3, 258));
  EXPECT_EQ(FoldOf(DType::kF16, Op::kAdd, {2048, 1, 1}), std::vector<double>(3, 2050));
  // 70,000 is over f16 on the way there, but not in f32.
  EXPECT_EQ(FoldOf(DType::kF16, Op::kAdd, {60000, 10016, -20000}), std::vector<double>(3, 50016));
  EXPECT_EQ(FoldOf(DType::kF16, Op::kMul, {256, 256, 0.5}), std::vector<double>(3, 32768));
}

TEST(Folds, OfMaximum_KeepNaN) {
  for (const double value : FoldOf(DType::kF32, Op::kMax, {1, std::nan(""), 3}))
    EXPECT_TRUE(std::isnan(value));
  EXPECT_EQ(FoldOf(DType::kF32, Op::kMax, {-2, -1}), std::vector<double>(2, -1));
}

// ---- whole graphs -------------------------------------------------------------------------------

TEST(Graphs, RowsBySlices_AreTheWholeProduct) {
  // Each rank takes its two rows of x by its rank, and all gather the products.
  Graph g;
  const UOp* const rank = Rank(g, 2);
  const UOp* const x = Param(g, 0, DType::kI32, Shape{4, 2});
  const UOp* const begin = Mul(g, rank, ConstIndex(g, 2));
  const UOp* const mine =
      Shrink(g, x, Shape{Dim(begin), Dim(Add(g, begin, ConstIndex(g, 2))), 0, 2});
  const UOp* const sum = Reduce(g, Op::kAdd, Mul(g, mine, mine), {1});
  const UOp* const sink =
      Sink(g, {Make(g, Op::kUnshard, sum, {0, 2, 1}),
               Make(g, Op::kAllReduce, Reduce(g, Op::kAdd, sum, {0}), {kAdd, 2, 1})});
  const HostTensor whole = Ints(DType::kI32, {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  const int64_t mesh = 2;
  const auto results = InterpretGroup(sink, {&mesh, 1}, {{{{whole}}, {{whole}}}});
  ASSERT_TRUE(results.ok()) << results.status();
  for (const auto& mine_of_rank : *results) {
    EXPECT_EQ(IntsOf(mine_of_rank[0]), (Numbers{5, 25, 61, 113}));
    EXPECT_EQ(IntsOf(mine_of_rank[1]), Numbers{204});
  }
}

TEST(Graphs, CollectivesInFunctions_MeetToo) {
  Graph g;
  const UOp* const p = Param(g, 0, DType::kI32, Shape{2});
  const UOp* const body = Make(g, Op::kAllReduce, Add(g, p, p), {kAdd, 3, 1});
  const UOp* const function = g.MakeChecked(Op::kFunction, DType::kVoid, {body, p});
  const UOp* const once = g.MakeChecked(Op::kCall, DType::kVoid, {function, p});
  const UOp* const twice = g.MakeChecked(Op::kCall, DType::kVoid, {function, once});
  const std::vector<std::vector<HostTensor>> params = {{Ints(DType::kI32, {2}, {1, 0})},
                                                       {Ints(DType::kI32, {2}, {2, 0})},
                                                       {Ints(DType::kI32, {2}, {3, 1})}};
  const int64_t mesh = 3;
  const auto results = InterpretGroup(Sink(g, {twice}), {&mesh, 1}, params);
  ASSERT_TRUE(results.ok()) << results.status();
  for (const auto& mine : *results) EXPECT_EQ(IntsOf(mine[0]), (Numbers{72, 12}));
}

TEST(Graphs, ValuesThatAreNotStored_AreExchangedToo) {
  Graph g;
  const UOp* const spread =
      Add(g, Iota(g, DType::kI32, 100), Full(g, Cast(g, Rank(g, 2), DType::kI32), Shape{100}));
  InterpretOptions options;
  options.stored_elements = 10;
  const int64_t mesh = 2;
  const auto results =
      InterpretGroup(Sink(g, {Make(g, Op::kReduceScatter, spread, {kAdd, 0, 2, 1})}), {&mesh, 1},
                     std::vector<std::vector<HostTensor>>(2), {}, options);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(IntsOf((*results)[0][0])[49], 2 * 49 + 1);
  EXPECT_EQ(IntsOf((*results)[1][0])[0], 2 * 50 + 1);
}

// ---- errors -------------------------------------------------------------------------------------

TEST(Refused, MeshesGroupsAndInputs) {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kI32, Shape{2});
  const auto sum = [&](int64_t count, int64_t stride) {
    return Sink(g, {Make(g, Op::kAllReduce, x, {kAdd, count, stride})});
  };
  const HostTensor good = Ints(DType::kI32, {2}, {1, 2});
  const auto tensors = [&](size_t ranks) {
    return std::vector<std::vector<HostTensor>>(ranks, {good});
  };
  const std::vector<Binding> rank = {{limits::kRankSlot, 0}};
  const struct {
    const char* name;
    const UOp* sink;
    std::vector<int64_t> mesh;
    std::vector<std::vector<HostTensor>> params;
    std::vector<Binding> bindings;
    const char* field;
  } cases[] = {
      {"no SINK", x, {2}, tensors(2), {}, "SINK"},
      {"a mesh of none", sum(2, 1), {0}, tensors(0), {}, "mesh"},
      {"too many ranks", sum(2, 1), {1 << 20, 1 << 20}, tensors(1), {}, "1024"},
      {"inputs of too few ranks", sum(2, 1), {2}, tensors(1), {}, "1 ranks"},
      {"a group across an axis", sum(2, 1), {2, 3}, tensors(6), {}, "2x3"},
      {"a group larger than the mesh", sum(4, 1), {2}, tensors(2), {}, "of 4 ranks"},
      {"a stride that is no axis", sum(2, 2), {2, 3}, tensors(6), {}, "stride 2"},
      {"the rank is bound", sum(2, 1), {2}, tensors(2), rank, "two bindings"},
      {"an input of another shape on rank 1",
       sum(2, 1),
       {2},
       {{good}, {Ints(DType::kI32, {1}, {1})}},
       {},
       "rank 1"},
  };
  for (const auto& c : cases) {
    const auto results = InterpretGroup(c.sink, c.mesh, c.params, c.bindings);
    EXPECT_EQ(results.status().code(), absl::StatusCode::kInvalidArgument) << c.name;
    EXPECT_TRUE(absl::StrContains(results.status().message(), c.field))
        << c.name << ": " << results.status();
  }
}

TEST(Refused, ShapesThatDiffer) {
  Graph g;
  const UOp* const length = Add(g, Rank(g, 2), ConstIndex(g, 1));
  const UOp* const x = Shrink(g, Iota(g, DType::kI32, 2), Shape{0, Dim(length)});
  const int64_t mesh = 2;
  const auto results = InterpretGroup(Sink(g, {Make(g, Op::kAllReduce, x, {kAdd, 2, 1})}),
                                      {&mesh, 1}, std::vector<std::vector<HostTensor>>(2));
  EXPECT_EQ(results.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(results.status().message(), "rank 1 has [2], rank 0 has [1]"))
      << results.status();
}

TEST(Refused, ByOneDeviceAlone) {
  Graph g;
  const HostTensor x = Ints(DType::kI32, {2}, {1, 2});
  const UOp* const sink =
      Sink(g, {Make(g, Op::kAllReduce, Param(g, 0, DType::kI32, Shape{2}), {kAdd, 2, 1})});
  EXPECT_EQ(Interpret(sink, {&x, 1}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Limits, AreThoseOfAllRanksTogether) {
  Graph g;
  const UOp* const sum = Make(g, Op::kAllReduce, Iota(g, DType::kI32, 1000), {kAdd, 2, 1});
  InterpretOptions options;
  options.work_max = 3000;  // the IOTA twice, but not the sums
  const int64_t mesh = 2;
  const std::vector<std::vector<HostTensor>> none(2);
  EXPECT_EQ(InterpretGroup(Sink(g, {sum}), {&mesh, 1}, none, {}, options).status().code(),
            absl::StatusCode::kResourceExhausted);
  options.work_max = 30000;
  options.bytes_max = 12000;
  EXPECT_EQ(InterpretGroup(Sink(g, {sum}), {&mesh, 1}, none, {}, options).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace outboard::test
