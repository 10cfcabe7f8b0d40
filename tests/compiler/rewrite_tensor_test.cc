// The rules on movements, reductions and loops: each on a graph made for it, evaluated before and
// after. Random tensor graphs go through the whole simplifier in random_graph_test.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/print.h"
#include "compiler/ir/spec.h"
#include "compiler/reference/interpret.h"
#include "compiler/rewrite/rules/rules.h"
#include "compiler/rewrite/simplify.h"

namespace outboard {
namespace {

class TensorRulesTest : public testing::Test {
 protected:
  // After all of them every rule of the table has been seen.
  static void TearDownTestSuite() {
    const testing::TestSuite& suite = *testing::UnitTest::GetInstance()->current_test_suite();
    if (suite.test_to_run_count() < suite.total_test_count()) return;
    for (const Rule& rule : rules::Tensor()) EXPECT_TRUE(fired.contains(rule.name)) << rule.name;
  }
  static std::set<std::string_view> fired;

  const UOp* Input(DType dtype, Shape dims) { return Param(g, 0, dtype, dims); }
  const UOp* FullOf(DType dtype, double value, Shape dims) {
    return Full(g, ConstOf(g, dtype, value), dims);
  }

  // The simplified graph; a failure where its value differs, or where `rule` did not fire.
  const UOp* Check(std::string_view rule, const UOp* before) {
    RewriteStats stats;
    const UOp* const after = Simplify(g, before, &stats);
    for (const auto& [name, count] : stats.matches_of) fired.insert(name);
    EXPECT_TRUE(stats.matches_of.contains(rule)) << rule;
    EXPECT_EQ(after->dtype, before->dtype);
    EXPECT_EQ(after->shape, before->shape);
    EXPECT_EQ(Simplify(g, after), after) << "not a fixed point: " << rule;
    std::vector<HostTensor> params;
    for (const UOp* param : ParamsOf(Sink(g, {before}))) {
      HostTensor tensor{param->dtype, StaticDims(param->shape), {}};
      tensor.bytes.resize(tensor.ElementCount() * ByteWidth(param->dtype));
      for (int64_t i = 0; i < tensor.ElementCount(); ++i) {
        char* const at = tensor.bytes.data() + i * ByteWidth(param->dtype);
        IsFloat(param->dtype) ? StoreFloat(param->dtype, i % 7 - 3.25, at)
                              : StoreInt(param->dtype, i % 7 - 3, at);
      }
      params.push_back(tensor);
    }
    EXPECT_EQ(ValueOrDie(Interpret(Sink(g, {before}), params)),
              ValueOrDie(Interpret(Sink(g, {after}), params)))
        << rule;
    return after;
  }

  Graph g;
};
std::set<std::string_view> TensorRulesTest::fired;

TEST_F(TensorRulesTest, MovementsOfNothing) {
  const UOp* const x = Input(DType::kF32, {Dim(2), Dim(3), Dim(1)});
  const auto raw = [&](Op op, std::vector<int64_t> arg) {
    return g.MakeChecked(op, DType::kVoid, {x}, arg);
  };
  EXPECT_EQ(Check("reshape-nothing", raw(Op::kReshape, {2, 3, 1})), x);
  EXPECT_EQ(Check("expand-nothing", raw(Op::kExpand, {2, 3, 1})), x);
  EXPECT_EQ(Check("permute-nothing", raw(Op::kPermute, {0, 1, 2})), x);
  EXPECT_EQ(Check("flip-nothing", raw(Op::kFlip, {2})), x);
  EXPECT_EQ(Check("pad-nothing", raw(Op::kPad, {0, 0, 0, 0, 0, 0})), x);
  EXPECT_EQ(Check("shrink-nothing", raw(Op::kShrink, {0, 2, 0, 3, 0, 1})), x);
}

TEST_F(TensorRulesTest, MovementsOfConstants) {
  const UOp* const c = FullOf(DType::kF32, 2.5, {Dim(2), Dim(3)});
  EXPECT_EQ(Check("reshape-constant", Reshape(g, c, {Dim(6)})), FullOf(DType::kF32, 2.5, {Dim(6)}));
  EXPECT_EQ(Check("permute-constant", Permute(g, c, {1, 0})),
            FullOf(DType::kF32, 2.5, {Dim(3), Dim(2)}));
  EXPECT_EQ(Check("flip-constant", Flip(g, c, {0, 1})), c);
  EXPECT_EQ(Check("shrink-constant", Shrink(g, c, {Dim(0), Dim(1), Dim(1), Dim(3)})),
            FullOf(DType::kF32, 2.5, {Dim(1), Dim(2)}));
  const UOp* const row = Reshape(g, ConstFloat(g, DType::kF32, 2.5), {Dim(1), Dim(1)});
  EXPECT_EQ(Check("expand-constant", Expand(g, Expand(g, row, {Dim(1), Dim(3)}), {Dim(2), Dim(3)})),
            c);
  const UOp* const zero = FullOf(DType::kF32, 0, {Dim(2)});
  EXPECT_EQ(Check("pad-constant", Pad(g, zero, {Dim(1), Dim(2)})),
            FullOf(DType::kF32, 0, {Dim(5)}));
  const UOp* const padded = Pad(g, FullOf(DType::kF32, -0.0, {Dim(2)}), {Dim(1), Dim(2)});
  EXPECT_EQ(Simplify(g, padded), padded) << "PAD gives +0";
}

TEST_F(TensorRulesTest, MovementsMerge) {
  const UOp* const x = Input(DType::kF32, {Dim(4), Dim(6)});
  EXPECT_EQ(Check("reshape-reshape", Reshape(g, Reshape(g, x, {Dim(24)}), {Dim(3), Dim(8)})),
            Reshape(g, x, {Dim(3), Dim(8)}));
  EXPECT_EQ(Check("reshape-reshape", Reshape(g, Reshape(g, x, {Dim(24)}), {Dim(4), Dim(6)})), x);
  const UOp* const y = Reshape(g, x, {Dim(4), Dim(1), Dim(6), Dim(1)});
  EXPECT_EQ(Check("expand-expand", Expand(g, Expand(g, y, {Dim(4), Dim(5), Dim(6), Dim(1)}),
                                          {Dim(4), Dim(5), Dim(6), Dim(2)})),
            Expand(g, y, {Dim(4), Dim(5), Dim(6), Dim(2)}));
  const UOp* const z = Reshape(g, x, {Dim(4), Dim(2), Dim(3)});
  EXPECT_EQ(Check("permute-permute", Permute(g, Permute(g, z, {2, 0, 1}), {2, 1, 0})),
            Permute(g, z, {1, 0, 2}));
  EXPECT_EQ(Check("permute-permute", Permute(g, Permute(g, z, {2, 0, 1}), {1, 2, 0})), z);
  EXPECT_EQ(Check("flip-flip", Flip(g, Flip(g, z, {0, 1}), {1, 2})), Flip(g, z, {0, 2}));
  EXPECT_EQ(Check("flip-flip", Flip(g, Flip(g, z, {0, 1}), {0, 1})), z);
  EXPECT_EQ(Check("pad-pad", Pad(g, Pad(g, x, {1, 2, 0, 3}), {0, 1, 4, 0})),
            Pad(g, x, {1, 3, 4, 3}));
  EXPECT_EQ(Check("shrink-shrink", Shrink(g, Shrink(g, x, {1, 4, 2, 6}), {1, 2, 0, 3})),
            Shrink(g, x, {2, 3, 2, 5}));
  EXPECT_EQ(Check("shrink-pad", Shrink(g, Pad(g, x, {1, 2, 0, 3}), {1, 5, 2, 5})),
            Shrink(g, x, {0, 4, 2, 5}));
  EXPECT_EQ(Check("shrink-pad", Shrink(g, Pad(g, x, {1, 2, 0, 3}), {1, 5, 0, 6})), x);
  const UOp* const partly = Shrink(g, Pad(g, x, {1, 2, 0, 3}), {0, 5, 0, 6});
  EXPECT_EQ(Simplify(g, partly), partly);
}

TEST_F(TensorRulesTest, Reductions) {
  const UOp* const x = Input(DType::kI8, {Dim(4), Dim(1), Dim(6)});
  EXPECT_EQ(Check("reduce-nothing", Reduce(g, Op::kAdd, x, {1})), x);
  EXPECT_EQ(Check("reduce-reduce", Reduce(g, Op::kAdd, Reduce(g, Op::kAdd, x, {2}), {0})),
            Reduce(g, Op::kAdd, x, {0, 2}));
  const UOp* const mixed = Reduce(g, Op::kMax, Reduce(g, Op::kAdd, x, {2}), {0});
  EXPECT_EQ(Simplify(g, mixed), mixed);
  const UOp* const f = Input(DType::kF32, {Dim(4), Dim(6)});
  EXPECT_EQ(Check("reduce-reduce", Reduce(g, Op::kMax, Reduce(g, Op::kMax, f, {1}), {0})),
            Reduce(g, Op::kMax, f, {0, 1}));
  // 100 * 5 wraps to -12 in i8.
  EXPECT_EQ(Check("reduce-constant", Reduce(g, Op::kAdd, FullOf(DType::kI8, 5, {Dim(100)}), {0})),
            FullOf(DType::kI8, -12, {Dim(1)}));
  EXPECT_EQ(Check("reduce-constant",
                  Reduce(g, Op::kMax, FullOf(DType::kF32, -1.5, {Dim(4), Dim(2)}), {0})),
            FullOf(DType::kF32, -1.5, {Dim(1), Dim(2)}));
  EXPECT_EQ(Check("reduce-constant", Reduce(g, Op::kAdd, FullOf(DType::kF32, 0, {Dim(4)}), {0})),
            FullOf(DType::kF32, 0, {Dim(1)}));
  const UOp* const empty = Reduce(g, Op::kMax, FullOf(DType::kI8, 5, {Dim(0)}), {0});
  EXPECT_EQ(Simplify(g, empty), empty) << "nothing has no maximum of 5";
  EXPECT_EQ(Check("contiguous-contiguous",
                  g.MakeChecked(Op::kContiguous, DType::kVoid,
                                {g.MakeChecked(Op::kContiguous, DType::kVoid, {f})})),
            g.MakeChecked(Op::kContiguous, DType::kVoid, {f}));
}

TEST_F(TensorRulesTest, Loops) {
  const auto range = [&](int64_t id, int64_t extent) {
    return g.MakeChecked(Op::kRange, DType::kI64, {},
                         {id, extent, static_cast<int64_t>(RangeKind::kReduce)});
  };
  const auto loop = [&](Op op, const UOp* value, std::vector<const UOp*> ranges) {
    ranges.insert(ranges.begin(), value);
    return g.MakeChecked(Op::kReduceLoop, DType::kVoid, ranges, {static_cast<int64_t>(op)});
  };
  const UOp *const one = range(0, 1), *const many = range(1, 7);
  const UOp* const value = Add(g, Mul(g, one, ConstIndex(g, 5)), many);
  RewriteStats stats;
  EXPECT_EQ(Simplify(g, loop(Op::kAdd, value, {one, many}), &stats), loop(Op::kAdd, many, {many}));
  EXPECT_EQ(Simplify(g, loop(Op::kMax, Add(g, one, ConstIndex(g, 3)), {one}), &stats),
            ConstIndex(g, 3));
  EXPECT_EQ(Simplify(g, loop(Op::kAdd, ConstIndex(g, 3), {one, many}), &stats), ConstIndex(g, 21));
  EXPECT_EQ(Simplify(g, loop(Op::kAdd, ConstFloat(g, DType::kF32, 0), {many}), &stats),
            ConstFloat(g, DType::kF32, 0));
  const UOp* const rounds = loop(Op::kAdd, ConstFloat(g, DType::kF32, 0.1), {many});
  EXPECT_EQ(Simplify(g, rounds, &stats), rounds);
  const UOp* const nothing = loop(Op::kMax, ConstIndex(g, 3), {range(2, 0)});
  EXPECT_EQ(Simplify(g, nothing, &stats), nothing);
  for (const auto& [name, count] : stats.matches_of) fired.insert(name);
}

TEST_F(TensorRulesTest, ElementwiseRulesSeeThroughBroadcasts) {
  const UOp* const x = Input(DType::kF32, {Dim(4), Dim(6)});
  const auto full = [&](double v) { return FullOf(DType::kF32, v, {Dim(4), Dim(6)}); };
  EXPECT_EQ(Check("mul-one", Mul(g, full(1), x)), x);
  EXPECT_EQ(Check("fold-add", Mul(g, x, Add(g, full(1), full(2)))), Mul(g, x, full(3)));
  EXPECT_EQ(
      Check("fold-cast", Mul(g, x, Cast(g, FullOf(DType::kI32, 3, {Dim(4), Dim(6)}), DType::kF32))),
      Mul(g, x, full(3)));
  EXPECT_EQ(Check("where-true", Where(g, Alu(g, Op::kCmpLt, full(1), full(2)), x, full(7))), x);
  const UOp* const iota = Iota(g, DType::kI32, Dim(6));
  const UOp* const below = Alu(g, Op::kCmpLt, iota, FullOf(DType::kI32, 6, {Dim(6)}));
  EXPECT_EQ(Check("bounds-less", below), FullOf(DType::kBool, 1, {Dim(6)}));
}

// Symbolic shapes: what can be done without arithmetic on dimensions is done, everything else
// stays.
TEST_F(TensorRulesTest, SymbolicShapes) {
  const UOp* const n = Var(g, 0, 1, 8);
  const UOp* const x = Param(g, 0, DType::kF32, {Dim(n), Dim(4)});
  EXPECT_EQ(Simplify(g, Permute(g, Permute(g, x, {1, 0}), {1, 0})), x);
  EXPECT_EQ(Simplify(g, Reshape(g, Reshape(g, x, {Dim(n), Dim(2), Dim(2)}), {Dim(n), Dim(4)})), x);
  const UOp* const padded = Shrink(g, Pad(g, x, {0, 1, 0, 0}), {Dim(0), Dim(n), Dim(0), Dim(4)});
  EXPECT_EQ(Simplify(g, padded)->shape, x->shape);
  const UOp* const two = Full(g, ConstFloat(g, DType::kF32, 2), x->shape);
  EXPECT_EQ(Simplify(g, Add(g, x, Mul(g, two, two))),
            Add(g, x, Full(g, ConstFloat(g, DType::kF32, 4), x->shape)));
}

// n zeros before a vector and 3 - n after it make a shape of numbers out of arguments that are
// none.
TEST_F(TensorRulesTest, SymbolicArgumentsOfStaticShapes) {
  const UOp* const n = Var(g, 0, 0, 3);
  const UOp* const rest = Add(g, ConstIndex(g, 3), Alu(g, Op::kNeg, n));
  const UOp* const x = Input(DType::kF32, {Dim(2)});
  const UOp* const padded = Pad(g, x, {Dim(n), Dim(rest)});
  ASSERT_TRUE(IsStatic(padded->shape));
  const UOp* const window = Shrink(g, padded, {Dim(n), Dim(Add(g, n, ConstIndex(g, 2)))});
  ASSERT_TRUE(IsStatic(window->shape));
  HostTensor input{DType::kF32, {2}, std::string(8, '\0')};
  StoreFloat(DType::kF32, 1.5, input.bytes.data());
  StoreFloat(DType::kF32, -2, input.bytes.data() + 4);
  const std::vector<HostTensor> inputs = {input};
  for (const UOp* before :
       {Pad(g, padded, {0, 1}), Pad(g, padded, {2, 0}), Shrink(g, padded, {0, 4}),
        Shrink(g, padded, {1, 5}), Pad(g, window, {1, 0}), Shrink(g, window, {1, 2}), window}) {
    const UOp* const after = Simplify(g, before);
    for (const int64_t value : {0, 1, 3}) {
      const std::vector<Binding> bound = {{0, value}};
      EXPECT_EQ(ValueOrDie(Interpret(Sink(g, {before}), inputs, bound)),
                ValueOrDie(Interpret(Sink(g, {after}), inputs, bound)));
    }
  }
}

TEST_F(TensorRulesTest, FunctionsAreRewrittenInside) {
  const UOp* const p = Param(g, 0, DType::kF32, {Dim(4)});
  const UOp* const body = Mul(g, p, FullOf(DType::kF32, 1, {Dim(4)}));
  const auto call = [&](const UOp* b) {
    return g.MakeChecked(Op::kCall, DType::kVoid,
                         {g.MakeChecked(Op::kFunction, DType::kVoid, {b, p}), p});
  };
  EXPECT_EQ(Simplify(g, Sink(g, {call(body)})), Sink(g, {call(p)}));
}

}  // namespace
}  // namespace outboard
