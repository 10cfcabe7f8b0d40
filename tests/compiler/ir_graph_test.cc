// Nodes and graphs: interning, order, dimensions, printing.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/dims.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/print.h"
#include "compiler/ir/spec.h"
#include "compiler/ir/uop.h"

namespace outboard {
namespace {

constexpr DType kF32 = DType::kF32, kVoid = DType::kVoid;

TEST(GraphTest, EqualIsIdentical) {
  Graph g;
  const UOp* const x = Param(g, 0, kF32, {2, 3});
  EXPECT_EQ(Param(g, 0, kF32, {2, 3}), x);
  EXPECT_NE(Param(g, 1, kF32, {2, 3}), x);
  EXPECT_NE(Param(g, 0, DType::kF16, {2, 3}), x);
  EXPECT_NE(Param(g, 0, kF32, {3, 2}), x);
  EXPECT_EQ(Add(g, x, x), Add(g, x, x));
  EXPECT_EQ(g.MakeChecked(Op::kAdd, kF32, {x, x}), g.MakeChecked(Op::kAdd, kVoid, {x, x}));
  EXPECT_NE(ConstFloat(g, kF32, 0.0), ConstFloat(g, kF32, -0.0));
  EXPECT_NE(ConstFloat(g, kF32, 1), ConstFloat(g, DType::kF64, 1));
  const int64_t count = g.node_count();
  Add(g, x, x);
  EXPECT_EQ(g.node_count(), count);
}

TEST(GraphTest, WithSourcesMovesANodeToAnotherGraph) {
  Graph g, other;
  const UOp* const r = Reduce(g, Op::kMax, Param(g, 0, kF32, {2, 3}), {1});
  const UOp* const y = Param(other, 0, kF32, {4, 5});
  const UOp* const moved = ValueOrDie(other.WithSources(r, {y}));
  EXPECT_EQ(moved, Reduce(other, Op::kMax, y, {1}));
  EXPECT_FALSE(other.WithSources(r, {Param(other, 0, kF32, {4})}).ok());
}

TEST(GraphTest, PostOrderIsLeftToRightAndOnce) {
  Graph g;
  const UOp *const b = Param(g, 1, kF32, {}), *const a = Param(g, 0, kF32, {});
  const UOp *const ab = Mul(g, a, b), *const sum = Add(g, ab, a);
  EXPECT_EQ(PostOrder(sum), (std::vector<const UOp*>{a, b, ab, sum}));
  EXPECT_EQ(PostOrder({b, sum}), (std::vector<const UOp*>{b, a, ab, sum}));
  const UOp* const f = g.MakeChecked(Op::kFunction, kVoid, {Mul(g, a, a), a});
  const UOp* const call = g.MakeChecked(Op::kCall, kVoid, {f, b});
  EXPECT_EQ(PostOrder(call, /*into_functions=*/false), (std::vector<const UOp*>{f, b, call}));
  EXPECT_EQ(PostOrder(call), (std::vector<const UOp*>{a, Mul(g, a, a), f, b, call}));
}

TEST(GraphTest, ChosenConstantsDoNotCollide) {
  // Case 36 of the hostile suite: patterns that weak mixing folds together. (The hash is secret as
  // well.)
  Graph g;
  std::set<uint32_t> hashes;
  for (int64_t i = 0; i < 20'000; ++i) hashes.insert(ConstInt(g, DType::kI64, i << 32 | i)->hash);
  for (int64_t i = 0; i < 20'000; ++i) hashes.insert(ConstInt(g, DType::kI64, i << 44)->hash);
  EXPECT_GT(hashes.size(), 39'900u);
}

TEST(GraphTest, WideAndDeepGraphsTakeLinearTime) {
  Graph g;
  const UOp* x = Param(g, 0, kF32, {});
  for (int i = 0; i < 200'000; ++i) x = Add(g, x, ConstFloat(g, kF32, i % 1000));
  EXPECT_EQ(PostOrder(x).back(), x);
  EXPECT_TRUE(VerifyGraph(Sink(g, {x}), Level::kTensor).ok());
  EXPECT_LT(ExpressionToString(x).size(), 1000u);
}

TEST(GraphTest, FunctionBodiesAreWalkedABoundedNumberOfTimes) {
  Graph g;
  g.walk_budget = limits::kWalkStepsMax;  // as while a graph is decoded
  const UOp* const p = Param(g, 0, kF32, {});
  const UOp* body = p;
  for (int i = 0; i < 100'000; ++i) body = Alu(g, Op::kNeg, body);
  absl::Status status;
  int made = 0;
  for (; status.ok() && made < 1000; ++made)  // one long body under many functions
    status = g.Make(Op::kFunction, kVoid, {Add(g, body, ConstFloat(g, kF32, made)), p}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_LT(made, 100);
}

TEST(GraphTest, TuplesAreFoundThroughFewCallsOnly) {
  Graph g;
  const UOp* call = nullptr;
  for (int depth = 0; depth <= limits::kTupleCallsMax; ++depth) {
    const UOp* const body =
        depth == 0 ? g.MakeChecked(Op::kTuple, kVoid, {ConstFloat(g, kF32, 1)}) : call;
    if (depth > 0) {
      EXPECT_TRUE(g.Make(Op::kGetTuple, kVoid, {call}, {0}).ok()) << depth;
    }
    call = g.MakeChecked(Op::kCall, kVoid, {g.MakeChecked(Op::kFunction, kVoid, {body})});
  }
  EXPECT_EQ(g.Make(Op::kGetTuple, kVoid, {call}, {0}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// ---- dimensions
// -------------------------------------------------------------------------------------------------

class DimTest : public testing::Test {
 protected:
  Dim Sum(const Dim& a, const Dim& b) { return ValueOrDie(AddDims(g, a, b)); }
  Dim Difference(const Dim& a, const Dim& b) { return ValueOrDie(SubtractDims(g, a, b)); }
  Dim Plus(const UOp* x, int64_t c) { return Dim(outboard::Add(g, x, ConstIndex(g, c))); }

  Graph g;
  const UOp* n = Var(g, 0, 1, 9);
  const UOp* m = Var(g, 1, 0, 4);
};

TEST_F(DimTest, SumsComeTogether) {
  EXPECT_EQ(Sum(3, 4), Dim(7));
  EXPECT_EQ(Sum(Dim(n), 0), Dim(n));
  EXPECT_EQ(Sum(0, Dim(n)), Dim(n));
  EXPECT_EQ(Sum(Dim(n), 2), Plus(n, 2));
  EXPECT_EQ(Sum(Plus(n, 2), 3), Plus(n, 5));
  EXPECT_EQ(Sum(Plus(n, 2), -2), Dim(n));
  EXPECT_EQ(Difference(Dim(n), Dim(n)), Dim(0));
  EXPECT_EQ(Difference(Plus(n, 5), Dim(n)), Dim(5));
  EXPECT_EQ(Sum(Plus(n, 1), Difference(64, Plus(n, 1))), Dim(64));
  const Dim both = Sum(Dim(n), Dim(m));
  EXPECT_EQ(both, Dim(outboard::Add(g, n, m)));
  EXPECT_EQ(Difference(both, Dim(m)), Dim(n));
  EXPECT_EQ(Difference(both, Dim(n)), Dim(m));
  EXPECT_EQ(Sum(Dim(n), Dim(n)), Dim(Mul(g, n, ConstIndex(g, 2))));
  EXPECT_FALSE(AddDims(g, Dim(INT64_MAX), Dim(1)).ok());
}

TEST_F(DimTest, OrderIsShownWhereItHolds) {
  EXPECT_TRUE(*AtMost(g, 3, 3));
  EXPECT_FALSE(*AtMost(g, 4, 3));
  EXPECT_TRUE(*AtMost(g, Dim(m), 4));
  EXPECT_FALSE(*AtMost(g, Dim(n), 8));
  EXPECT_TRUE(*AtMost(g, Dim(n), Plus(n, 1)));
  EXPECT_FALSE(*AtMost(g, Plus(n, 1), Dim(n)));
  EXPECT_TRUE(*AtMost(g, Dim(n), Sum(Dim(n), Dim(m))));
  EXPECT_FALSE(*AtMost(g, Dim(n), Dim(m)));
}

TEST_F(DimTest, ManyPathsStayCheap) {
  const UOp* e = m;
  for (int i = 0; i < 50; ++i) e = outboard::Add(g, e, Mul(g, e, e));
  EXPECT_TRUE(AddDims(g, Dim(e), Dim(n)).ok());
}

TEST_F(DimTest, ShapesAreSymbolic) {
  const UOp* const x = Param(g, 0, kF32, {Dim(n), 4});
  EXPECT_FALSE(IsStatic(x->shape));
  EXPECT_EQ(x->own_sources(), 0);
  EXPECT_EQ(x->arg_dim(1), Dim(n));
  EXPECT_EQ(x->arg_dim(2), Dim(4));
  EXPECT_EQ(x->shape[0].min(), 1);
  EXPECT_EQ(x->shape[0].max(), 9);
  const UOp* const flat = Reshape(g, x, {4, Dim(n)});
  EXPECT_EQ(flat->shape[1], Dim(n));
  EXPECT_FALSE(g.Make(Op::kReshape, kVoid, {x, m}, {kSymbolicDim, 4}).ok());  // another symbol
  const UOp* const padded = Pad(g, x, {Dim(m), 1, 0, 0});
  EXPECT_EQ(padded->shape[0], Sum(Sum(Dim(n), Dim(m)), 1));
  EXPECT_EQ(padded->own_sources(), 1);
  EXPECT_EQ(Shrink(g, padded, {Dim(m), Sum(Dim(m), Dim(n)), 0, 4})->shape[0], Dim(n));
  // A cache of 9 filled up to n, and what is left of it.
  const UOp* const cache = Param(g, 1, kF32, {9});
  EXPECT_EQ(Shrink(g, cache, {0, Dim(n)})->shape[0], Dim(n));
  EXPECT_EQ(Pad(g, Shrink(g, cache, {0, Dim(n)}), {0, Difference(9, Dim(n))})->shape[0], Dim(9));
  EXPECT_FALSE(g.Make(Op::kShrink, kVoid, {cache, outboard::Add(g, n, m)}, {0, kSymbolicDim})
                   .ok());  // up to 13
  EXPECT_EQ(Dim(ConstIndex(g, 5)), Dim(5));
}

// ---- printing
// -------------------------------------------------------------------------------------------------

TEST(PrintTest, APersonCanReadIt) {
  Graph g;
  const UOp* const n = Var(g, 0, 1, 9);
  const UOp* const x = Param(g, 0, kF32, {Dim(Add(g, n, ConstIndex(g, 1))), 2});
  EXPECT_EQ(ShapeToString(x->shape), "[(n0 + 1), 2]");
  EXPECT_EQ(NodeToString(Reduce(g, Op::kAdd, x, {0, 1})), "REDUCE f32[1, 1] ADD axes 0,1");
  EXPECT_EQ(NodeToString(ConstFloat(g, kF32, 0.5)), "CONST f32[] 0.5");
  const UOp* const y = Param(g, 0, kF32, {2});
  EXPECT_EQ(GraphToString(Sink(g, {Add(g, y, y)})),
            "%0 = PARAM f32[2] 0\n"
            "%1 = ADD f32[2] %0 %0\n"
            "%2 = SINK %1\n");
}

TEST(PrintTest, LongExpressionsAreCut) {
  Graph g;
  const UOp* e = Var(g, 0, 0, 3);
  for (int i = 0; i < 1000; ++i) e = Add(g, e, ConstIndex(g, i));
  EXPECT_LT(ExpressionToString(e).size(), 2000u);
  const UOp* diamond = Var(g, 0, 0, 3);  // 2^60 paths
  for (int i = 0; i < 60; ++i) diamond = Add(g, diamond, diamond);
  EXPECT_LT(ExpressionToString(diamond).size(), 2000u);
}

}  // namespace
}  // namespace outboard
