// Gradients of every operation, against central differences and to the second order; corners; how
// functions are shared.
#include "compiler/gradient/gradient.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/print.h"
#include "tests/compiler/gradient_cases.h"
#include "tests/compiler/gradient_check.h"

namespace outboard {
namespace {

using Xs = std::vector<const UOp*>;
constexpr DType F64 = DType::kF64;

std::vector<double> RandomValues(int64_t count, double low, double high, std::mt19937_64& random) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(std::uniform_real_distribution<>(low, high)(random));
  return values;
}

const UOp* Number(Graph& g, const UOp* like, double value) {
  return Full(g, ConstOf(g, like->dtype, value), like->shape);
}

class EveryOp : public testing::TestWithParam<int> {};

TEST_P(EveryOp, MatchesDifferences) {
  const GradientCase c = GradientCases()[GetParam()];
  SCOPED_TRACE(c.name);
  std::mt19937_64 random(GetParam() + 1);
  Graph g;
  Xs xs;
  std::vector<Input> inputs;
  for (const auto& dims : c.shapes) {
    xs.push_back(Param(g, static_cast<int64_t>(xs.size()), F64, Shape(dims.begin(), dims.end())));
    inputs.push_back(
        {xs.back(), RandomValues(ElementCount(xs.back()->shape), c.low, c.high, random)});
  }
  ExpectGradients(g, c.build(g, xs), inputs);
}

INSTANTIATE_TEST_SUITE_P(Gradient, EveryOp,
                         testing::Range(0, static_cast<int>(GradientCases().size())));

class GradientTest : public testing::Test {
 protected:
  const UOp* P(int64_t slot, ShapeView shape, DType dtype = F64) {
    return Param(g, slot, dtype, shape);
  }
  const UOp* Node(Op op, Sources src, absl::Span<const int64_t> arg = {}) {
    return g.MakeChecked(op, DType::kVoid, src, arg);
  }
  const UOp* Of(const UOp* y, const UOp* x, const UOp* dy = nullptr) {
    return ValueOrDie(Gradient(g, y, dy, {x}))[0];
  }
  std::vector<double> ValueOf(const UOp* node, const std::vector<Input>& inputs) {
    return ValueOrDie(Evaluate(g, {node}, inputs))[0];
  }
  // The gradient of sum(y), at `values`.
  std::vector<double> OfSum(const UOp* y, const UOp* x, std::vector<double> values) {
    return ValueOf(Of(y, x, Number(g, y, 1)), {{x, std::move(values)}});
  }
  int Count(const UOp* root, Op op) {
    int count = 0;
    for (const UOp* node : PostOrder(root)) count += node->op == op;
    return count;
  }

  Graph g;
};

using Doubles = std::vector<double>;

TEST_F(GradientTest, CornersAreThoseOfTheHeader) {
  const UOp* const x = P(0, {3});
  EXPECT_EQ(OfSum(Alu(g, Op::kMax, x, Number(g, x, 0)), x, {-1, 0, 2}), (Doubles{0, 0, 1}));
  EXPECT_EQ(OfSum(Alu(g, Op::kMax, Number(g, x, 0), x), x, {-1, 0, 2}), (Doubles{0, 0, 1}));
  const UOp* const magnitude = Alu(g, Op::kMax, x, Alu(g, Op::kNeg, x));
  EXPECT_EQ(OfSum(magnitude, x, {-3, 0, 2}), (Doubles{-1, 0, 1}));
  EXPECT_EQ(OfSum(Reduce(g, Op::kMax, x, {0}), x, {2, 1, 2}), (Doubles{0.5, 0, 0.5}));
  EXPECT_EQ(OfSum(Reduce(g, Op::kMax, x, {0}), x, {2, NAN, 2}), (Doubles{0, 0, 0}));
  EXPECT_EQ(OfSum(Reduce(g, Op::kMul, x, {0}), x, {0, 3, 2}), (Doubles{6, 0, 0}));
  EXPECT_EQ(OfSum(Reduce(g, Op::kMul, x, {0}), x, {0, 3, 0}), (Doubles{0, 0, 0}));
  EXPECT_EQ(OfSum(Alu(g, Op::kSqrt, x), x, {0, 1, 4}), (Doubles{INFINITY, 0.5, 0.25}));
  // The branch not taken may be infinite.
  const UOp* const guarded = Where(g, Alu(g, Op::kCmpLt, Number(g, x, 0), x), x, Number(g, x, 1));
  EXPECT_EQ(OfSum(Alu(g, Op::kSqrt, guarded), x, {0, 1, 4}), (Doubles{0, 0.5, 0.25}));
}

// One exponential and one quotient, right far from 0 on both sides.
TEST_F(GradientTest, SlopeOfASigmoid) {
  const UOp* const x = P(0, {5}, DType::kF32);
  const UOp* const negative = Alu(g, Op::kCmpLt, x, Number(g, x, 0));
  const UOp* const e = Alu(g, Op::kExp, Where(g, negative, x, Alu(g, Op::kNeg, x)));
  const UOp* const one = Number(g, x, 1);
  const UOp* const y = Alu(g, Op::kFDiv, Where(g, negative, e, one), Add(g, one, e));
  const UOp* const slope = Of(y, x, one);
  EXPECT_EQ(Count(slope, Op::kFDiv), 1);
  EXPECT_EQ(Count(slope, Op::kExp), 1);
  const Doubles at = {-300, -30, 0, 30, 300};
  const Doubles found = ValueOf(slope, {{x, at}});
  const double far = std::exp(-30.0);
  for (const auto& [i, wanted] : {std::pair{0, 0.0}, {1, far}, {2, 0.25}, {3, far}, {4, 0.0}})
    EXPECT_NEAR(found[i], wanted, 1e-6 * wanted) << at[i];
}

TEST_F(GradientTest, SecondDerivativesOfAProductAtZeros) {
  const UOp* const x = P(0, {2});
  const UOp* const first = Of(Reduce(g, Op::kMul, x, {0}), x);  // (x1, x0)
  EXPECT_EQ(OfSum(first, x, {0, 0}), (Doubles{1, 1}));
}

TEST_F(GradientTest, CastsAreUndone) {
  const UOp *const x = P(0, {3}), *const w = P(1, {3}, DType::kF16);
  EXPECT_EQ(Of(Cast(g, x, DType::kF16), x, w), Cast(g, w, F64));
  // The largest of 4096 equal halves: their count is past what f16 can count to.
  const UOp* const halves = P(2, {4096}, DType::kF16);
  const Doubles share = OfSum(Reduce(g, Op::kMax, halves, {0}), halves, Doubles(4096, 1.5));
  EXPECT_EQ(share, Doubles(4096, 1.0 / 4096));
}

TEST_F(GradientTest, CosineHoldsFarFromZero) {
  const UOp* const x = P(0, {4}, DType::kF32);
  const Doubles at = {1, 1000, 54321, 1e6};
  const Doubles found = OfSum(Alu(g, Op::kSin, x), x, at);
  for (size_t i = 0; i < at.size(); ++i) EXPECT_NEAR(found[i], std::cos(at[i]), 1e-6) << at[i];
}

TEST_F(GradientTest, WhatHasNoneGivesZero) {
  const UOp* const x = P(0, {3});
  const UOp* const through_int = Cast(g, Cast(g, x, DType::kI32), F64);
  for (const UOp* y : {Node(Op::kDetach, {x}), Alu(g, Op::kTrunc, x), through_int, P(1, {3}),
                       Cast(g, Alu(g, Op::kCmpLt, x, P(1, {3})), F64)}) {
    const UOp* const gradient = Of(y, x, Number(g, y, 1));
    EXPECT_EQ(gradient, Number(g, x, 0)) << GraphToString(Sink(g, {y}));
  }
  const UOp* const assign = Node(Op::kAssign, {x, P(1, {3})});
  EXPECT_EQ(Of(assign, x, Number(g, x, 1)), Number(g, x, 0));
}

TEST_F(GradientTest, CostsNothingWhereThereIsNothingToDo) {
  const UOp *const x = P(0, {3}), *const w = P(1, {3});
  const UOp* const one = Number(g, x, 1);
  EXPECT_EQ(Of(x, x, one), one);
  EXPECT_EQ(Of(Mul(g, x, w), x, one), w);
  EXPECT_EQ(Of(Node(Op::kContiguous, {x}), x, w), w);
  EXPECT_EQ(Of(Reduce(g, Op::kAdd, Mul(g, x, w), {0}), x), w);
  // relu: one comparison and one WHERE.
  const UOp* const zero = Number(g, x, 0);
  EXPECT_EQ(Of(Alu(g, Op::kMax, x, zero), x, w), Where(g, Alu(g, Op::kCmpLt, zero, x), w, zero));
  // What does not depend on x is not differentiated.
  const int64_t before = g.node_count();
  const UOp* heavy = w;
  for (int i = 0; i < 100; ++i) heavy = Alu(g, Op::kSin, heavy);
  const UOp* const y = Add(g, x, heavy);
  EXPECT_EQ(Of(y, x, one), one);
  EXPECT_EQ(g.node_count(), before + 101);
}

TEST_F(GradientTest, GoesThroughANodeOfWrtToOthers) {
  const UOp* const x = P(0, {});
  const UOp* const square = Mul(g, x, x);
  const UOp* const y = Mul(g, square, square);
  const auto both = ValueOrDie(Gradient(g, y, nullptr, {square, x, y}));
  const std::vector<Input> at = {{x, {3}}};
  EXPECT_EQ(ValueOf(both[0], at), Doubles{18});
  EXPECT_EQ(ValueOf(both[1], at), Doubles{108});
  EXPECT_EQ(ValueOf(both[2], at), Doubles{1});
}

TEST_F(GradientTest, LongChainsAndDiamonds) {
  const UOp* const x = P(0, {});
  const UOp* chain = x;
  for (int i = 0; i < 100'000; ++i) chain = Add(g, chain, ConstOf(g, F64, i % 2 ? 1 : -1));
  EXPECT_EQ(Of(chain, x), ConstOf(g, F64, 1));
  const UOp* diamond = x;  // 2^40 paths
  for (int i = 0; i < 40; ++i) diamond = Add(g, diamond, diamond);
  EXPECT_EQ(ValueOf(Of(diamond, x), {{x, {0.5}}}), Doubles{std::ldexp(1.0, 40)});
}

TEST_F(GradientTest, EqualInEveryProcess) {
  const auto text = [] {
    Graph other;
    const UOp *const a = Param(other, 0, F64, {4}), *const b = Param(other, 1, F64, {4});
    const UOp* const y =
        Reduce(other, Op::kMul, Mul(other, Add(other, a, b), Alu(other, Op::kSin, a)), {0});
    return GraphToString(Sink(other, ValueOrDie(Gradient(other, y, nullptr, {a, b}))));
  };
  EXPECT_EQ(text(), text());
}

TEST_F(GradientTest, SymbolicDimensions) {
  const UOp* const n = Var(g, 0, 1, 6);
  const UOp *const x = P(0, {Dim(n), 2}), *const cache = P(1, {8});
  const auto dims = std::vector<int64_t>{4, 2};
  std::mt19937_64 random(5);
  const std::vector<Input> one = {{x, RandomValues(8, -1, 1, random), dims}};
  const std::vector<Binding> bound = {{0, 4}};
  const UOp* const square = Mul(g, x, x);
  const UOp* const total = Reduce(g, Op::kAdd, square, {0, 1});
  ExpectGradients(g, Mul(g, square, Expand(g, total, square->shape)), one, 2, bound);
  ExpectGradients(g, Mul(g, Flip(g, square, {0}), Expand(g, Reduce(g, Op::kMax, x, {0}), x->shape)),
                  one, 2, bound);
  // PAD and its gradient, SHRINK, and back.
  const UOp* const padded = Pad(g, square, {2, 1, 0, 0});
  const UOp* const sum = Reduce(g, Op::kAdd, Mul(g, padded, padded), {0, 1});
  ExpectGradients(g, sum, one, 2, bound);
  // The filled part of a cache of 8, n + 1 long.
  const UOp* const length = Add(g, n, ConstIndex(g, 1));
  const UOp* const filled = Shrink(g, cache, {0, Dim(length)});
  const UOp* const last = Shrink(g, cache, {Dim(n), Dim(length)});
  const UOp* const y =
      Add(g, Reduce(g, Op::kAdd, Mul(g, filled, filled), {0}), Reshape(g, last, {1}));
  ExpectGradients(g, y, {{cache, RandomValues(8, -1, 1, random)}}, 2, bound);
}

TEST_F(GradientTest, ErrorsAreStatuses) {
  const UOp *const x = P(0, {3}), *const i = P(1, {3}, DType::kI32);
  const auto code = [&](const UOp* y, const UOp* dy, const UOp* wrt) {
    return Gradient(g, y, dy, {wrt}).status().code();
  };
  using absl::StatusCode;
  EXPECT_EQ(code(x, nullptr, x), StatusCode::kInvalidArgument);  // three elements
  EXPECT_EQ(code(x, P(2, {1}), x), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(x, P(2, {3}, DType::kF32), x), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(i, i, x), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(x, x, i), StatusCode::kInvalidArgument);
  const UOp *const h = P(3, {3}, DType::kF16), *const bits = Bitcast(g, h, DType::kBF16);
  EXPECT_EQ(code(bits, bits, h), StatusCode::kUnimplemented);
  const UOp* const two = Node(Op::kAllReduce, {x}, {static_cast<int64_t>(Op::kAdd), 2, 1});
  EXPECT_EQ(code(two, two, x), StatusCode::kUnimplemented);
  const UOp* const v = P(4, {Dim(Var(g, 0, 1, 6))});
  EXPECT_EQ(code(Reduce(g, Op::kMul, v, {0}), nullptr, v), StatusCode::kUnimplemented);
  // Near the limit of nodes: an error, not an end of the process.
  const UOp* deep = P(5, {});
  while (g.node_count() < (1 << 20) - 4096) deep = Alu(g, Op::kSin, deep);
  EXPECT_EQ(code(deep, nullptr, P(5, {})), StatusCode::kResourceExhausted);
}

// ---- functions
// -------------------------------------------------------------------------------------------------

class GradientOfCalls : public GradientTest {
 protected:
  // layer(x, w) = (sin(x * w), x + w)
  const UOp* Layer() {
    const UOp *const x = P(0, {3}), *const w = P(1, {3});
    const UOp* const body = Node(Op::kTuple, {Alu(g, Op::kSin, Mul(g, x, w)), Add(g, x, w)});
    return Node(Op::kFunction, {body, x, w});
  }
  std::vector<Input> Inputs(int count) {
    std::mt19937_64 random(3);
    std::vector<Input> inputs;
    for (int i = 0; i < count; ++i) inputs.push_back({P(i, {3}), RandomValues(3, -1, 1, random)});
    return inputs;
  }
};

TEST_F(GradientOfCalls, OneResultOfTwo) {
  const UOp* const call = Node(Op::kCall, {Layer(), P(0, {3}), P(1, {3})});
  ExpectGradients(g, Node(Op::kGetTuple, {call}, {0}), Inputs(2));
  ExpectGradients(g, Node(Op::kGetTuple, {call}, {1}), Inputs(2));
}

TEST_F(GradientOfCalls, BothResults) {
  const UOp* const call = Node(Op::kCall, {Layer(), P(0, {3}), P(1, {3})});
  const UOp *const a = Node(Op::kGetTuple, {call}, {0}), *const b =
                                                             Node(Op::kGetTuple, {call}, {1});
  ExpectGradients(g, Mul(g, a, b), Inputs(2));
}

TEST_F(GradientOfCalls, OfAValueAndOfATuple) {
  const UOp* const x = P(0, {3});
  const UOp* const square = Node(Op::kFunction, {Mul(g, x, x), x});
  ExpectGradients(g, Node(Op::kCall, {square, Alu(g, Op::kSin, x)}), Inputs(1));
  const UOp* const tuple = Node(Op::kTuple, {x, Mul(g, x, x)});
  ExpectGradients(g, Mul(g, Node(Op::kGetTuple, {tuple}, {0}), Node(Op::kGetTuple, {tuple}, {1})),
                  Inputs(1));
}

TEST_F(GradientOfCalls, NestedWithTheTupleOfAnInnerCall) {
  const UOp *const x = P(0, {3}), *const w = P(1, {3});
  const UOp* const body = Node(Op::kCall, {Layer(), Mul(g, x, x), w});
  const UOp* const outer = Node(Op::kFunction, {body, x, w});
  const UOp* const call = Node(Op::kCall, {outer, x, w});
  ExpectGradients(g, Mul(g, Node(Op::kGetTuple, {call}, {0}), Node(Op::kGetTuple, {call}, {1})),
                  Inputs(2));
}

TEST_F(GradientOfCalls, TheSameArgumentTwice) {
  const UOp* const call = Node(Op::kCall, {Layer(), P(0, {3}), P(0, {3})});
  ExpectGradients(g, Node(Op::kGetTuple, {call}, {0}), Inputs(1));
}

TEST_F(GradientOfCalls, AnArgumentThatDoesNotMatter) {
  const UOp *const x = P(0, {3}), *const w = P(1, {3});
  const UOp* const ignores = Node(Op::kFunction, {Mul(g, w, w), x, w});
  const UOp* const call = Node(Op::kCall, {ignores, x, w});
  EXPECT_EQ(Of(call, x, Number(g, call, 1)), Number(g, x, 0));
  ExpectGradients(g, call, Inputs(2));
}

TEST_F(GradientOfCalls, TwelveLayersShareOneGradient) {
  const UOp* const layer = Layer();
  const UOp* y = P(0, {3});
  std::vector<const UOp*> wrt = {y};
  for (int i = 1; i <= 12; ++i) {
    wrt.push_back(P(i, {3}));
    y = Node(Op::kGetTuple, {Node(Op::kCall, {layer, y, wrt.back()})}, {0});
  }
  const auto gradients = ValueOrDie(Gradient(g, y, Number(g, y, 1), wrt));
  EXPECT_EQ(Count(Sink(g, gradients), Op::kFunction), 2);  // the layer's own and its gradient
  ExpectGradients(g, y, Inputs(13), 1);
  // A first layer whose input wants no gradient has a body of its own.
  const std::vector<const UOp*> weights(wrt.begin() + 1, wrt.end());
  EXPECT_EQ(Count(Sink(g, ValueOrDie(Gradient(g, y, Number(g, y, 1), weights))), Op::kFunction), 3);
}

TEST_F(GradientOfCalls, DeepNesting) {  // a thousand deep: each function calls the one before
  const UOp* const x = P(0, {});
  const UOp* function = Node(Op::kFunction, {Add(g, x, x), x});
  for (int i = 0; i < 1000; ++i)
    function = Node(Op::kFunction, {Node(Op::kCall, {function, Alu(g, Op::kNeg, x)}), x});
  const UOp* const gradient = Of(Node(Op::kCall, {function, x}), x);
  EXPECT_EQ(Count(Sink(g, {gradient}), Op::kFunction), 1001);
}

// ---- random graphs
// -------------------------------------------------------------------------------------------------

// Smooth where it is probed: arguments of LOG2, SQRT and FDIV are kept away from 0, everything is
// kept small by SIN.
const UOp* RandomGraph(Graph& g, Xs pool, std::mt19937_64& random) {
  const auto pick = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  const auto positive = [&](const UOp* x) { return Add(g, Mul(g, x, x), Number(g, x, 0.5)); };
  for (int i = 0; i < 12; ++i) {
    const UOp* const a = pool[pick(pool.size())];
    const UOp* b = pool[pick(pool.size())];
    const UOp* made = nullptr;
    switch (pick(16)) {
      case 0: made = Alu(g, Op::kExp2, a); break;
      case 1: made = Alu(g, Op::kLog2, positive(a)); break;
      case 2: made = Alu(g, Op::kSqrt, positive(a)); break;
      case 3: made = Alu(g, Op::kFDiv, a, positive(b)); break;
      case 4: made = Add(g, a, b); break;
      case 5: made = Mul(g, a, b); break;
      case 6: made = Alu(g, Op::kMax, a, b); break;
      case 7: made = Where(g, Alu(g, Op::kCmpLt, a, b), Mul(g, a, a), b); break;
      case 8: made = Permute(g, a, {1, 0}); break;
      case 9: made = Flip(g, a, {static_cast<int64_t>(pick(2))}); break;
      case 10: made = Shrink(g, Pad(g, a, {1, 1, 0, 2}), {0, 3, 1, 4}); break;
      case 11:
        made = Expand(g, Reduce(g, Op::kAdd, a, {static_cast<int64_t>(pick(2))}), a->shape);
        break;
      case 12: made = Expand(g, Reduce(g, Op::kMax, a, {0, 1}), a->shape); break;
      case 13:
        made = Expand(g, Reduce(g, Op::kMul, a, {static_cast<int64_t>(pick(2))}), a->shape);
        break;
      case 14: made = Reshape(g, Reshape(g, a, {9}), {3, 3}); break;
      default: made = Add(g, g.MakeChecked(Op::kContiguous, DType::kVoid, {a}), b); break;
    }
    pool.push_back(Alu(g, Op::kSin, made));
  }
  return pool.back();
}

TEST(GradientRandom, SmallGraphs) {
  const auto first = static_cast<uint64_t>(GTEST_FLAG_GET(random_seed));
  for (uint64_t seed = first; seed < first + 60; ++seed) {
    SCOPED_TRACE("repeat with --gtest_filter=GradientRandom.SmallGraphs --gtest_random_seed=" +
                 std::to_string(seed));
    std::mt19937_64 random(seed);
    Graph g;
    const Xs xs = {Param(g, 0, F64, {3, 3}), Param(g, 1, F64, {3, 3})};
    const std::vector<Input> inputs = {{xs[0], RandomValues(9, -1, 1, random)},
                                       {xs[1], RandomValues(9, -1, 1, random)}};
    ExpectGradients(g, RandomGraph(g, xs, random), inputs, 1);
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace outboard
