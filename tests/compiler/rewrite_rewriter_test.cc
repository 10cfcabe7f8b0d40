// The pattern language and the walk, apart from the rules of the simplifier.
#include <gtest/gtest.h>

#include <thread>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/print.h"
#include "compiler/rewrite/order.h"
#include "compiler/rewrite/rebuild.h"
#include "compiler/rewrite/recorder.h"
#include "compiler/rewrite/rewriter.h"
#include "compiler/rewrite/rules/linear.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/rewrite/substitute.h"

namespace outboard {
namespace {

using namespace pattern;

class RewriterTest : public testing::Test {
 protected:
  const UOp* Range(int64_t id, int64_t extent) {
    return g.MakeChecked(Op::kRange, DType::kI64, {}, {id, extent, 0});
  }
  const UOp* Number(int64_t value) { return ConstIndex(g, value); }

  template <size_t n>
  const UOp* Run(const Rule (&rules)[n], const UOp* root) {
    stats = {};
    return Rewrite(g, root, Matcher({std::span<const Rule>(rules)}), &stats);
  }

  Graph g;
  RewriteStats stats;
  const UOp* r0 = Range(0, 10);
  const UOp* r1 = Range(1, 20);
};

TEST_F(RewriterTest, OperandsOfCommutativeOperationsMatchEitherWay) {
  static constexpr Rule kRules[] = {{"found", x * y + x, y}};
  const UOp *const a = Mul(g, r0, r1), *const b = Mul(g, r1, r0);
  for (const UOp* root : {Add(g, a, r0), Add(g, r0, a), Add(g, b, r0), Add(g, r0, b)})
    EXPECT_EQ(Run(kRules, root), r1);
  EXPECT_EQ(stats.matches_of["found"], 1);
}

TEST_F(RewriterTest, RepeatedNamesMustBeTheSameNode) {
  static constexpr Rule kRules[] = {{"found", x / x, lit(1)}};
  EXPECT_EQ(Run(kRules, Alu(g, Op::kIDiv, r0, r0)), Number(1));
  EXPECT_EQ(Run(kRules, Alu(g, Op::kIDiv, r0, r1)), Alu(g, Op::kIDiv, r0, r1));
  EXPECT_EQ(stats.visits, 1);
  EXPECT_EQ(stats.matches, 0);
}

// Under nodes of one graph are nodes of another, which have the same numbers (UOp::index).
TEST_F(RewriterTest, NodesOfTwoGraphsAreNotTakenForEachOther) {
  Graph other;
  const auto range_of = [](Graph& graph, int64_t id) {
    return graph.MakeChecked(Op::kRange, DType::kI64, {}, {id, 10 + id, 0});
  };
  const UOp* mixed = ConstInt(g, DType::kBool, 0);
  for (int64_t i = 0; i < 30; ++i) {
    const UOp* const own = Add(g, Add(g, Number(-1), range_of(g, i)), Mul(g, r0, Number(1)));
    const UOp* const far = range_of(other, 40 + i);
    const UOp* const sum = Add(other, Add(other, ConstIndex(other, -3), far), far);
    const UOp* const less = Alu(other, Op::kCmpLt, sum, ConstIndex(other, i - 2));
    mixed = Alu(g, Op::kXor, mixed, Alu(g, Op::kAnd, Alu(g, Op::kCmpNe, own, Number(5)), less));
  }
  Graph one;
  const auto copy = [&](const UOp* root) {
    absl::flat_hash_map<const UOp*, const UOp*> made;
    for (const UOp* node : PostOrder(root)) {
      std::vector<const UOp*> src;
      for (const UOp* s : node->src) src.push_back(made.at(s));
      made[node] = one.MakeChecked(node->op, node->dtype, src, node->arg);
    }
    return made.at(root);
  };
  EXPECT_EQ(GraphToString(Simplify(g, mixed)), GraphToString(Simplify(one, copy(mixed))));
}

TEST_F(RewriterTest, EarlierRulesWin) {
  static constexpr Rule kRules[] = {{"first", x + c0, x, c0 > 5}, {"second", x + c0, c0}};
  EXPECT_EQ(Run(kRules, Add(g, r0, Number(6))), r0);
  EXPECT_EQ(Run(kRules, Add(g, r0, Number(5))), Number(5));
}

TEST_F(RewriterTest, BroadcastConstantsAreConstantsAndResultsHaveTheShape) {
  static constexpr Rule kRules[] = {{"add-consts", (x + c0) + c1, x + fold(c0 + c1)}};
  const UOp* const p = Param(g, 0, DType::kI8, {Dim(2), Dim(3)});
  const auto full = [&](int64_t v) { return Full(g, ConstInt(g, DType::kI8, v), p->shape); };
  EXPECT_EQ(Run(kRules, Add(g, Add(g, p, full(100)), full(100))), Add(g, p, full(-56)))
      << "wraps at 8 bits";
}

TEST_F(RewriterTest, FitsLooksAtBounds) {
  static constexpr Rule kRules[] = {{"found", x + y, x, fits(x * y)}};
  const auto narrow = [&](const UOp* a) { return Cast(g, a, DType::kI8); };
  const UOp *const small = narrow(Range(2, 12)), *const large = narrow(Range(3, 13));
  EXPECT_EQ(Run(kRules, Add(g, small, small)), small);
  EXPECT_EQ(Run(kRules, Add(g, large, large)), Add(g, large, large)) << "12 * 12 is over 127";
}

TEST_F(RewriterTest, SharedNodesAreVisitedOnce) {
  static constexpr Rule kRules[] = {{"never", x + c0, x, c0 < 0}};
  const UOp* node = Add(g, r0, Number(1));
  for (int i = 0; i < 60; ++i) node = Add(g, node, node);  // 2^60 paths
  EXPECT_EQ(Run(kRules, node), node);
  EXPECT_EQ(stats.visits, 61);
}

TEST_F(RewriterTest, LongChainsNeedNoStack) {
  static constexpr Rule kRules[] = {{"neg-neg", -(-x), x}};
  const UOp* node = r0;
  for (int i = 0; i < 200000; ++i) node = Alu(g, Op::kNeg, Alu(g, Op::kAdd, node, r1));
  EXPECT_EQ(Run(kRules, node), node);
  EXPECT_FALSE(stats.stopped);
}

TEST_F(RewriterTest, RulesThatUndoEachOtherAreStopped) {
  static constexpr Rule kRules[] = {{"there", x + y, x | y}, {"back", x | y, x + y}};
  const UOp* const root = Add(g, Add(g, r0, r1), r1);
  const UOp* const result = Run(kRules, root);
  EXPECT_TRUE(stats.stopped);
  EXPECT_EQ(result->dtype, DType::kI64);
  EXPECT_LE(stats.matches, 100);
}

TEST_F(RewriterTest, RulesThatGrowForEverAreStopped) {
  static constexpr Rule kRules[] = {{"grow", x + c0, (x + fold(c0 + 1)) + 1}};
  const UOp* const result = Run(kRules, Add(g, r0, Number(1)));
  EXPECT_TRUE(stats.stopped);
  EXPECT_LE(stats.matches, 1001);
  EXPECT_EQ(result->dtype, DType::kI64);
}

TEST_F(RewriterTest, AResultOfAnotherTypeIsNotTaken) {
  static constexpr Rule kRules[] = {{"wrong", x < y, x}};
  const UOp* const root = Alu(g, Op::kCmpLt, r0, r1);
  EXPECT_EQ(Run(kRules, root), root);
}

TEST_F(RewriterTest, SymbolicDimensionsStayAsTheyAreSpelled) {
  const UOp* const n = Var(g, 0, 1, 8);
  const UOp* const spelled = Add(g, Number(0), n);
  const UOp* const p = Param(g, 0, DType::kF32, {Dim(spelled)});
  const UOp* const root = Sink(g, {Mul(g, p, p), Add(g, Number(0), n)});
  const UOp* const result = Simplify(g, root);
  EXPECT_EQ(result->src[0], root->src[0]);
  EXPECT_EQ(result->src[1], n);
}

TEST_F(RewriterTest, RewritesNest) {
  static constexpr Rule kRules[] = {{"inner", x % y, [](Graph& graph, const Match& m) {
                                       return Simplify(graph, Add(graph, m[x], m[y]));
                                     }}};
  const UOp* node = r0;
  for (int i = 0; i < 50; ++i) node = Alu(g, Op::kMod, node, Number(3));
  EXPECT_EQ(Run(kRules, node), Add(g, r0, Number(150)));
}

TEST_F(RewriterTest, ThreadsShareAMatcher) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([] {
      Graph graph;
      const UOp* const x = graph.MakeChecked(Op::kRange, DType::kI64, {}, {0, 100, 0});
      for (int i = 1; i < 200; ++i)
        EXPECT_EQ(Simplify(graph, Alu(graph, Op::kIDiv, Mul(graph, x, ConstIndex(graph, i)),
                                      ConstIndex(graph, i))),
                  x);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(RewriterTest, TotalsCount) {
  const RewriteTotals before = TotalsOfRewrites();
  Simplify(g, Add(g, r0, Number(0)), &stats);
  const RewriteTotals after = TotalsOfRewrites();
  EXPECT_EQ(after.visits - before.visits, stats.visits);
  EXPECT_EQ(after.matches - before.matches, 1);
  EXPECT_GT(after.nanoseconds, before.nanoseconds);
}

// What a recorder is told, a line each.
class Lines : public RewriteRecorder {
 public:
  void BeginPass(std::string_view name, Sources of, const UOp* before) override {
    lines.push_back("begin " + std::string(name) + " " + ExpressionToString(before));
    for (const UOp* value : of) lines.back() += " of " + ExpressionToString(value);
  }
  void Applied(std::string_view rule, const UOp* before, const UOp* after) override {
    lines.push_back(std::string(rule) + " " + ExpressionToString(before) + " -> " +
                    ExpressionToString(after));
  }
  void EndPass(const UOp* after) override {
    lines.push_back(after == nullptr ? "failed" : "end " + ExpressionToString(after));
  }
  std::vector<std::string> lines;
};

TEST_F(RewriterTest, ARecorderSeesPassesAndRules) {
  Lines recorder;
  const UOp* const sum = Add(g, Add(g, r0, Number(2)), Number(3));
  {
    const RecordedThread thread(&recorder);
    {
      RecordedPass pass("outer", {r1}, sum);
      pass.Made(Simplify(g, sum));
      { const RecordedPass inner("inner", {}, r0); }
    }
    Simplify(g, Add(g, Number(0), r1));
    std::thread([&] {
      Graph other;
      Simplify(other, ConstIndex(other, 1));
    }).join();
  }
  Simplify(g, Add(g, Number(0), r0));
  EXPECT_EQ(recorder.lines,
            (std::vector<std::string>{"begin outer ((r0 + 2) + 3) of r1",
                                      "sum ((r0 + 2) + 3) -> (r0 + 5)", "begin inner r0", "failed",
                                      "end (r0 + 5)", "begin rewrite (0 + r1)",
                                      "add-zero (0 + r1) -> r1", "end r1"}));
}

// A graph at its limit of nodes is left as it is, and nothing ends the process.
TEST_F(RewriterTest, AFullGraphIsNotRewritten) {
  const UOp* const root = Sink(g, {Add(g, r0, Number(0)), Add(g, r1, Number(0))});
  int64_t i = 0;
  while (g.Make(Op::kConst, DType::kI64, {}, {1000 + i++}).ok()) {
  }
  EXPECT_EQ(Rewrite(g, root, SimplifyMatcher(), &stats), root);
  EXPECT_TRUE(stats.stopped);
}

TEST_F(RewriterTest, Substitute) {
  const UOp* const sum = Add(g, Mul(g, r0, Number(3)), r1);
  EXPECT_EQ(Substitute(g, sum, {{r0, r1}}), Add(g, Mul(g, r1, Number(3)), r1));
  EXPECT_EQ(Substitute(g, sum, {{Number(7), r1}}), sum);
  EXPECT_EQ(Substitute(g, sum, {{sum, r1}}), r1);
  // What is put in is not looked into.
  EXPECT_EQ(Substitute(g, sum, {{r0, Add(g, r0, r0)}}),
            Add(g, Mul(g, Add(g, r0, r0), Number(3)), r1));
}

TEST_F(RewriterTest, SubstituteMakesNothingOfWhatOnlyKeysRead) {
  const UOp* below = r0;
  for (int i = 0; i < 1000; ++i) below = Mul(g, Add(g, below, Number(i)), r1);
  const UOp* const user = Add(g, below, r1);
  const int64_t before = g.node_count();
  EXPECT_EQ(Substitute(g, user, {{below, r0}, {r0, Number(7)}}), Add(g, r0, r1));
  EXPECT_LE(g.node_count() - before, 2);  // the sum, and the number
}

TEST_F(RewriterTest, SubstituteWritesDimensionsAsNumbers) {
  const UOp* const n = Var(g, 0, 1, 8);
  const UOp* const full = Full(g, ConstFloat(g, DType::kF32, 2), {Dim(4), Dim(n)});
  const UOp* const bound = Substitute(g, full, {{n, Number(5)}});
  EXPECT_EQ(bound, Full(g, ConstFloat(g, DType::kF32, 2), {Dim(4), Dim(5)}));
}

TEST_F(RewriterTest, LinearForms) {
  // (r0 * 20 + r1) * 5 - r1 + 7
  const UOp* const e =
      Add(g, Add(g, Mul(g, Add(g, Mul(g, r0, Number(20)), r1), Number(5)), Alu(g, Op::kNeg, r1)),
          Number(7));
  const LinearSum linear = LinearOf(e);
  ASSERT_EQ(linear.terms.size(), 2u);
  EXPECT_EQ(linear.terms[0], std::make_pair(r0, int64_t{100}));
  EXPECT_EQ(linear.terms[1], std::make_pair(r1, int64_t{4}));
  EXPECT_EQ(linear.constant, 7);
  EXPECT_TRUE(IsExact(linear));
  EXPECT_EQ(static_cast<int64_t>(BoundsOfSum(linear).max), 900 + 76 + 7);
  const UOp* const canonical = FromLinear(g, linear);
  EXPECT_EQ(ExpressionToString(canonical), "(((r0 * 100) + (r1 * 4)) + 7)");
  EXPECT_TRUE(IsExpressionOf(canonical, linear));
  EXPECT_FALSE(IsExpressionOf(e, linear));
}

TEST_F(RewriterTest, SumsOfTooManyTermsAreOneTerm) {
  const UOp* sum = r0;
  for (int i = 0; i < 200; ++i) sum = Add(g, sum, Range(10 + i, 3));
  EXPECT_EQ(LinearOf(sum).terms.size(), 1u);
  Simplify(g, sum, &stats);
  EXPECT_FALSE(stats.stopped);
}

// What a client may send: additions without end cost a few steps each, not all that came before. A
// walk of each whole chain would be 10^9 steps, which nobody would wait for.
TEST_F(RewriterTest, LongChainsCostAsMuchAsTheyAreLong) {
  const auto chain = [&](auto add) {
    Graph graph;
    const auto range = [&](int64_t i) {
      return graph.MakeChecked(Op::kRange, DType::kI64, {}, {i, 100, 0});
    };
    const UOp* node = range(0);
    for (int i = 1; i < 30000; ++i) node = add(graph, node, range(i));
    stats = {};
    Simplify(graph, node, &stats);
    EXPECT_FALSE(stats.stopped);
    EXPECT_LE(stats.visits, 90000);
  };
  chain([](Graph& h, const UOp* x, const UOp* r) { return Add(h, x, r); });
  chain([](Graph& h, const UOp* x, const UOp* r) { return Add(h, r, x); });
  chain([](Graph& h, const UOp* x, const UOp* r) { return Alu(h, Op::kNeg, Add(h, x, r)); });
  chain([](Graph& h, const UOp* x, const UOp* r) {
    return Add(h, Add(h, x, r), ConstIndex(h, RangeOf(r).id()));
  });
}

TEST_F(RewriterTest, OrderIsByWhatNodesSay) {
  const UOp* const seven = Number(7);
  const UOp* const late = Range(5, 3);
  EXPECT_LT(CompareStructure(r0, r1), 0);
  EXPECT_LT(CompareStructure(late, seven), 0) << "constants last, whenever they were made";
  EXPECT_LT(CompareStructure(r1, Mul(g, r0, r0)), 0);
  EXPECT_EQ(CompareStructure(r0, r0), 0);
  EXPECT_GT(CompareStructure(Full(g, seven, {Dim(3)}), Param(g, 0, DType::kI64, {Dim(3)})), 0);
}

}  // namespace
}  // namespace outboard
