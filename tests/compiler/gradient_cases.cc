#include "tests/compiler/gradient_cases.h"

#include "compiler/ir/build.h"

namespace outboard {
namespace {

using Xs = std::vector<const UOp*>;

const UOp* Number(Graph& g, const UOp* like, double value) {
  return Full(g, ConstOf(g, like->dtype, value), like->shape);
}

GradientCase Unary(const char* name, Op op, double low = -2, double high = 2) {
  return {name, {{2, 3}}, low, high, [op](Graph& g, const Xs& x) { return Alu(g, op, x[0]); }};
}
GradientCase Binary(const char* name, Op op, double low = -2, double high = 2) {
  return {name, {{2, 3}, {2, 3}}, low, high, [op](Graph& g, const Xs& x) {
            return Alu(g, op, x[0], x[1]);
          }};
}
// Squared first, so that the gradient depends on the values and order 2 has something to say.
GradientCase Moved(const char* name, std::vector<int64_t> shape,
                   std::function<const UOp*(Graph&, const UOp*)> move) {
  return {name, {shape}, -2, 2, [move](Graph& g, const Xs& x) {
            const UOp* const moved = move(g, Mul(g, x[0], x[0]));
            return Mul(g, moved, moved);
          }};
}

}  // namespace

std::vector<GradientCase> GradientCases() {
  return {
      Unary("neg", Op::kNeg),
      Unary("exp2", Op::kExp2),
      Unary("log2", Op::kLog2, 0.5, 3),
      Unary("sin", Op::kSin, -20, 20),
      Unary("exp", Op::kExp),
      Unary("log", Op::kLog, 0.5, 3),
      Unary("cos", Op::kCos, -20, 20),
      Unary("tanh", Op::kTanh),
      Unary("sqrt", Op::kSqrt, 0.5, 3),
      Unary("trunc", Op::kTrunc, 0.1, 0.9),
      Binary("add", Op::kAdd),
      Binary("mul", Op::kMul),
      Binary("fdiv", Op::kFDiv, 0.5, 2),
      Binary("max", Op::kMax),
      {"sigmoid",
       {{2, 3}},
       -4,
       4,
       [](Graph& g, const Xs& x) {
         const UOp* const negative = Alu(g, Op::kCmpLt, x[0], Number(g, x[0], 0));
         const UOp* const below = Where(g, negative, x[0], Alu(g, Op::kNeg, x[0]));
         const UOp* const e = Alu(g, Op::kExp, below);
         const UOp* const one = Number(g, x[0], 1);
         return Alu(g, Op::kFDiv, Where(g, negative, e, one), Add(g, one, e));
       }},
      {"square", {{3}}, -2, 2, [](Graph& g, const Xs& x) { return Mul(g, x[0], x[0]); }},
      {"cube",
       {{3}},
       -2,
       2,
       [](Graph& g, const Xs& x) { return Mul(g, x[0], Mul(g, x[0], x[0])); }},
      {"divided by itself plus 3",
       {{3}},
       -2,
       2,
       [](Graph& g, const Xs& x) {
         return Alu(g, Op::kFDiv, x[0], Add(g, x[0], Number(g, x[0], 3)));
       }},
      {"relu",
       {{7}},
       -2,
       2,
       [](Graph& g, const Xs& x) {
         return Alu(g, Op::kMax, Mul(g, x[0], x[0]), Number(g, x[0], 0.9));
       }},
      {"where",
       {{2, 3}, {2, 3}},
       -2,
       2,
       [](Graph& g, const Xs& x) {
         const UOp* const c = Alu(g, Op::kCmpLt, x[0], x[1]);
         return Where(g, c, Mul(g, x[0], x[1]), Mul(g, x[1], x[1]));
       }},
      {"scalar", {{}}, 0.5, 2, [](Graph& g, const Xs& x) { return Alu(g, Op::kLog2, x[0]); }},
      Moved("reshape", {2, 6},
            [](Graph& g, const UOp* x) {
              return Reshape(g, x, {3, 4});
            }),
      Moved("permute", {2, 3, 4},
            [](Graph& g, const UOp* x) {
              return Permute(g, x, {2, 0, 1});
            }),
      Moved("expand", {2, 1, 3},
            [](Graph& g, const UOp* x) {
              return Expand(g, x, {2, 4, 3});
            }),
      Moved("expand two", {1, 3, 1},
            [](Graph& g, const UOp* x) {
              return Expand(g, x, {2, 3, 2});
            }),
      Moved("pad", {2, 3},
            [](Graph& g, const UOp* x) {
              return Pad(g, x, {1, 0, 2, 1});
            }),
      Moved("shrink", {4, 3},
            [](Graph& g, const UOp* x) {
              return Shrink(g, x, {1, 3, 0, 2});
            }),
      Moved("flip", {2, 3}, [](Graph& g, const UOp* x) { return Flip(g, x, {1}); }),
      Moved("sum", {2, 3, 2},
            [](Graph& g, const UOp* x) {
              return Reduce(g, Op::kAdd, x, {0, 2});
            }),
      Moved("largest", {2, 3, 2},
            [](Graph& g, const UOp* x) {
              return Reduce(g, Op::kMax, x, {1, 2});
            }),
      {"product",
       {{2, 5}},
       -2,
       2,
       [](Graph& g, const Xs& x) { return Reduce(g, Op::kMul, x[0], {1}); }},
      {"product of two axes",
       {{3, 2, 2}},
       -2,
       2,
       [](Graph& g, const Xs& x) {
         return Reduce(g, Op::kMul, x[0], {0, 2});
       }},
      {"product of one",
       {{1, 2}},
       -2,
       2,
       [](Graph& g, const Xs& x) { return Reduce(g, Op::kMul, x[0], {0}); }},
      Moved(
          "contiguous", {3},
          [](Graph& g, const UOp* x) { return g.MakeChecked(Op::kContiguous, DType::kVoid, {x}); }),
      Moved("assign", {3},
            [](Graph& g, const UOp* x) {
              return g.MakeChecked(Op::kAssign, DType::kVoid, {Number(g, x, 5), x});
            }),
      Moved("layout", {4},
            [](Graph& g, const UOp* x) {
              return g.MakeChecked(Op::kLayout, DType::kVoid, {x}, {0, 0});
            }),
      {"matmul",
       {{2, 3}, {3, 4}},
       -1,
       1,
       [](Graph& g, const Xs& x) {
         const UOp* const a = Expand(g, Reshape(g, x[0], {2, 3, 1}), {2, 3, 4});
         const UOp* const b = Expand(g, Reshape(g, x[1], {1, 3, 4}), {2, 3, 4});
         return Reduce(g, Op::kAdd, Mul(g, a, b), {1});
       }},
      {"log-softmax",
       {{2, 4}},
       -2,
       2,
       [](Graph& g, const Xs& x) {
         const UOp* const largest = Expand(g, Reduce(g, Op::kMax, x[0], {1}), {2, 4});
         const UOp* const shifted = Add(g, x[0], Alu(g, Op::kNeg, largest));
         const UOp* const sum = Reduce(g, Op::kAdd, Alu(g, Op::kExp2, shifted), {1});
         return Add(g, shifted, Alu(g, Op::kNeg, Expand(g, Alu(g, Op::kLog2, sum), {2, 4})));
       }},
      // Windows: y[o, k] = x[o + k], as a one-hot sum over the input's axis.
      {"windows",
       {{5}, {1, 3}},
       -1,
       1,
       [](Graph& g, const Xs& x) {
         const auto along = [&](int64_t n, int axis) {
           Shape ones(3, Dim(1));
           ones[axis] = Dim(n);
           return Expand(g, Reshape(g, Iota(g, DType::kI32, n), ones), {3, 3, 5});
         };
         const UOp* const hit = Alu(g, Op::kCmpEq, along(5, 2), Add(g, along(3, 0), along(3, 1)));
         const UOp* const spread = Expand(g, Reshape(g, x[0], {1, 1, 5}), {3, 3, 5});
         const UOp* const windows =
             Reduce(g, Op::kAdd, Where(g, hit, spread, Number(g, spread, 0)), {2});
         return Reduce(g, Op::kAdd, Mul(g, Reshape(g, windows, {3, 3}), Expand(g, x[1], {3, 3})),
                       {1});
       }},
  };
}

}  // namespace outboard
