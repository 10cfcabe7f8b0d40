// Expr makes the nodes that it names, and those only; accessors read what op.h says.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/expr.h"
#include "compiler/ir/print.h"

namespace outboard {
namespace {

class ExprTest : public testing::Test {
 protected:
  Graph g;
  const UOp* const a = Param(g, 0, DType::kF32, {2, 3});
  const UOp* const b = Param(g, 1, DType::kF32, {2, 3});
  const UOp* const i = Param(g, 2, DType::kI32, {4});
  const UOp* const j = Param(g, 3, DType::kI32, {4});
  const UOp* const c = Param(g, 4, DType::kBool, {2, 3});
  const Expr x{g, a}, y{g, b}, m{g, i}, n{g, j}, when{g, c};

  const UOp* Number(const UOp* like, double value) {
    return Full(g, ConstOf(g, like->dtype, value), like->shape);
  }
  const UOp* Of(Op op, const UOp* p) { return Alu(g, op, p); }
  const UOp* Of(Op op, const UOp* p, const UOp* q) { return Alu(g, op, p, q); }
};

TEST_F(ExprTest, MakesTheNodesThatItNames) {
  const UOp *const two = Number(a, 2), *const seven = Number(i, 7);
  const struct {
    const char* text;
    Expr made;
    const UOp* meant;
  } cases[] = {
      {"-x", -x, Of(Op::kNeg, a)},
      {"x + y", x + y, Add(g, a, b)},
      {"x + 2", x + 2, Add(g, a, two)},
      {"2 + x", 2 + x, Add(g, two, a)},
      {"x - y", x - y, Add(g, a, Of(Op::kNeg, b))},
      {"x - 2", x - 2, Add(g, a, Number(a, -2))},
      {"2 - x", 2 - x, Add(g, two, Of(Op::kNeg, a))},
      {"x * y", x * y, Mul(g, a, b)},
      {"x * 2", x * 2, Mul(g, a, two)},
      {"2 * x", 2 * x, Mul(g, two, a)},
      {"x / y", x / y, Of(Op::kFDiv, a, b)},
      {"x / 2", x / 2, Of(Op::kFDiv, a, two)},
      {"2 / x", 2 / x, Of(Op::kFDiv, two, a)},
      {"m / n", m / n, Of(Op::kIDiv, i, j)},
      {"m % 7", m % 7, Of(Op::kMod, i, seven)},
      {"m & n", m & n, Of(Op::kAnd, i, j)},
      {"m & 7", m & 7, Of(Op::kAnd, i, seven)},
      {"m | 7", m | 7, Of(Op::kOr, i, seven)},
      {"m ^ 7", m ^ 7, Of(Op::kXor, i, seven)},
      {"m << 7", m << 7, Of(Op::kShl, i, seven)},
      {"m >> n", m >> n, Of(Op::kShr, i, j)},
      {"x < y", x < y, Of(Op::kCmpLt, a, b)},
      {"x > y", x > y, Of(Op::kCmpLt, b, a)},
      {"x < 2", x < 2, Of(Op::kCmpLt, a, two)},
      {"2 < x", 2 < x, Of(Op::kCmpLt, two, a)},
      {"x > 2", x > 2, Of(Op::kCmpLt, two, a)},
      {"2 > x", 2 > x, Of(Op::kCmpLt, a, two)},
      {"x == y", x == y, Of(Op::kCmpEq, a, b)},
      {"x == 2", x == 2, Of(Op::kCmpEq, a, two)},
      {"x != 2", x != 2, Of(Op::kCmpNe, a, two)},
      {"x.exp()", x.exp(), Of(Op::kExp, a)},
      {"x.exp2()", x.exp2(), Of(Op::kExp2, a)},
      {"x.log()", x.log(), Of(Op::kLog, a)},
      {"x.log2()", x.log2(), Of(Op::kLog2, a)},
      {"x.sin()", x.sin(), Of(Op::kSin, a)},
      {"x.cos()", x.cos(), Of(Op::kCos, a)},
      {"x.tanh()", x.tanh(), Of(Op::kTanh, a)},
      {"x.sqrt()", x.sqrt(), Of(Op::kSqrt, a)},
      {"x.trunc()", x.trunc(), Of(Op::kTrunc, a)},
      {"x.max(y)", x.max(y), Of(Op::kMax, a, b)},
      {"x.max(2)", x.max(2), Of(Op::kMax, a, two)},
      {"when.where(x, y)", when.where(x, y), Where(g, c, a, b)},
      {"when.where(2, y)", when.where(2, y), Where(g, c, two, b)},
      {"when.where(x, 2)", when.where(x, 2), Where(g, c, a, two)},
      {"fma(x, y, x)", fma(x, y, x), Alu(g, Op::kMulAcc, a, b, a)},
      {"fma(x, 2, y)", fma(x, 2, y), Alu(g, Op::kMulAcc, a, two, b)},
      {"fma(x, y, 2)", fma(x, y, 2), Alu(g, Op::kMulAcc, a, b, two)},
      {"fma(x, 2, 2)", fma(x, 2, 2), Alu(g, Op::kMulAcc, a, two, two)},
      {"x.cast(f16)", x.cast(DType::kF16), Cast(g, a, DType::kF16)},
      {"x.cast(f32)", x.cast(DType::kF32), a},
      {"x.bitcast(i32)", x.bitcast(DType::kI32), Bitcast(g, a, DType::kI32)},
      {"x.bitcast(f32)", x.bitcast(DType::kF32), a},
      {"x.like(2)", x.like(2), two},
      {"m.like(-1)", m.like(-1), Full(g, ConstInt(g, DType::kI32, -1), i->shape)},
      {"x.reshape({6})", x.reshape({6}), Reshape(g, a, {6})},
      {"x.permute({1, 0})", x.permute({1, 0}), Permute(g, a, {1, 0})},
      {"x.permute({0, 1})", x.permute({0, 1}), a},
      {"x.flip({1})", x.flip({1}), Flip(g, a, {1})},
      {"x.flip({})", x.flip({}), a},
      {"x.pad({0, 0, 1, 2})", x.pad({0, 0, 1, 2}), Pad(g, a, {0, 0, 1, 2})},
      {"x.pad({0, 0, 0, 0})", x.pad({0, 0, 0, 0}), a},
      {"x.shrink({0, 1, 0, 3})", x.shrink({0, 1, 0, 3}), Shrink(g, a, {0, 1, 0, 3})},
      {"x.shrink({0, 2, 0, 3})", x.shrink({0, 2, 0, 3}), a},
      {"x.sum({1, 0})", x.sum({1, 0}), Reduce(g, Op::kAdd, a, {0, 1})},
      {"x.sum({})", x.sum({}), a},
      {"x.product({0})", x.product({0}), Reduce(g, Op::kMul, a, {0})},
      {"x.largest({1})", x.largest({1}), Reduce(g, Op::kMax, a, {1})},
      {"expand", x.sum({1}).expand({2, 3}), Expand(g, Reduce(g, Op::kAdd, a, {1}), {2, 3})},
      {"full", Expr(g, ConstInt(g, DType::kI64, 5)).full({2, 2}),
       Full(g, ConstInt(g, DType::kI64, 5), {2, 2})},
  };
  for (const auto& test : cases)
    EXPECT_EQ(test.made.node(), test.meant)
        << test.text << " is " << GraphToString(Sink(g, {test.made.node()}));
}

// What build.h promises of movements, which Expr makes, without Expr.
TEST_F(ExprTest, MovementsHaveTheArgumentsOfTheirKind) {
  const auto node = [&](Op op, const UOp* x, absl::Span<const int64_t> arg) {
    return g.MakeChecked(op, DType::kVoid, {x}, arg);
  };
  EXPECT_EQ(Reshape(g, a, {3, 2}), node(Op::kReshape, a, {3, 2}));
  EXPECT_EQ(Permute(g, a, {1, 0}), node(Op::kPermute, a, {1, 0}));
  EXPECT_EQ(Flip(g, a, {0}), node(Op::kFlip, a, {0}));
  EXPECT_EQ(Pad(g, a, {1, 2, 3, 4}), node(Op::kPad, a, {1, 2, 3, 4}));
  EXPECT_EQ(Shrink(g, a, {0, 1, 1, 3}), node(Op::kShrink, a, {0, 1, 1, 3}));
  EXPECT_EQ(Reduce(g, Op::kMax, a, {1, 0}),
            node(Op::kReduce, a, {static_cast<int64_t>(Op::kMax), 0, 1}));
  const UOp* const one = ConstInt(g, DType::kI64, 1);
  EXPECT_EQ(Full(g, one, {2, 3}), node(Op::kExpand, node(Op::kReshape, one, {1, 1}), {2, 3}));
  EXPECT_EQ(Full(g, one, {}), one);
  const UOp* const length = Var(g, 0, 1, 9);
  const UOp* const rows = Param(g, 9, DType::kF32, {1, 3});
  EXPECT_EQ(Expand(g, rows, {Dim(length), 3}),
            g.MakeChecked(Op::kExpand, DType::kVoid, {rows, length}, {kSymbolicDim, 3}));
}

TEST_F(ExprTest, LiteralsAreOfTheNodesType) {
  const auto bits = [&](DType dtype, Literal value) {
    return ConstantBits(Expr(g, Param(g, 9, dtype, {})).like(value).node());
  };
  constexpr int64_t kOdd = (int64_t{1} << 62) + 1;  // no double
  EXPECT_EQ(bits(DType::kI64, kOdd), kOdd);
  EXPECT_EQ(bits(DType::kI64, -Literal(kOdd)), -kOdd);
  EXPECT_EQ(bits(DType::kI64, INT64_MIN), INT64_MIN);
  EXPECT_EQ(bits(DType::kU64, UINT64_MAX), -1);
  EXPECT_EQ(bits(DType::kU8, -1), 255);
  EXPECT_EQ(bits(DType::kI32, 5.0), 5);
  EXPECT_EQ(bits(DType::kBool, 1), 1);
  EXPECT_EQ(bits(DType::kF32, 0.1), std::bit_cast<int64_t>(static_cast<double>(0.1f)));
  EXPECT_EQ(bits(DType::kF64, 3), std::bit_cast<int64_t>(3.0));
  EXPECT_EQ(bits(DType::kF32, -Literal(0.0)), std::bit_cast<int64_t>(-0.0));
  EXPECT_DEATH(bits(DType::kI32, 0.5), "trunc");
  EXPECT_DEATH(bits(DType::kI64, 0x1p63), "trunc");
}

// A maker sees every node, literals and their shapes included, and may refuse one.
class Counting : public NodeMaker {
 public:
  explicit Counting(Graph& g) : g_(g) {}
  const UOp* Make(Op op, DType dtype, Sources src, absl::Span<const int64_t> arg) override {
    if (op == Op::kSqrt) throw std::string("refused");
    ops.push_back(op);
    return g_.MakeChecked(op, dtype, src, arg);
  }
  std::vector<Op> ops;

 private:
  Graph& g_;
};

TEST_F(ExprTest, AMakerSeesEveryNode) {
  Counting maker(g);
  const Expr of_maker(maker, a);
  const Expr made = (of_maker * 2).sum({1});
  EXPECT_EQ(made.node(), (x * 2).sum({1}).node());
  EXPECT_EQ(maker.ops,
            (std::vector<Op>{Op::kConst, Op::kReshape, Op::kExpand, Op::kMul, Op::kReduce}));
  EXPECT_THROW((made + 1).sqrt(), std::string);
}

TEST_F(ExprTest, WhatIsNotOfOneTypeEndsTheProcess) {
  EXPECT_DEATH(x + m, "");
  EXPECT_DEATH(x.sum({0}) + x, "");
}

TEST(Accessors, ReadTheArguments) {
  Graph g;
  const auto node = [&](Op op, Sources src, absl::Span<const int64_t> arg,
                        DType dtype = DType::kVoid) { return g.MakeChecked(op, dtype, src, arg); };
  const UOp* const x = Param(g, 7, DType::kF32, {4, 6});
  const UOp* const n = Var(g, 3, -2, 4);
  EXPECT_EQ(ParamOf(x).slot(), 7);
  EXPECT_EQ(BufferOf(BufferNode(g, 12, DType::kF32, {3})).name(), 12);
  EXPECT_EQ(VarOf(n).slot(), 3);
  EXPECT_EQ(VarOf(n).min(), -2);
  EXPECT_EQ(VarOf(n).max(), 4);
  EXPECT_EQ(ConstantBits(ConstInt(g, DType::kI8, -5)), -5);
  EXPECT_EQ(ConstantBits(ConstFloat(g, DType::kF32, 1)), 0x3ff0000000000000);
  EXPECT_EQ(PermuteOf(Permute(g, x, {1, 0})).axis(0), 1);
  EXPECT_EQ(FlipOf(Flip(g, x, {1})).axes(), absl::Span<const int64_t>({1}));
  const UOp* const k = Var(g, 0, 0, 3);
  const UOp* const padded = Pad(g, x, {1, Dim(k), 3, 4});
  EXPECT_EQ(PadOf(padded).low(0), Dim(1));
  EXPECT_EQ(PadOf(padded).high(0), Dim(k));
  EXPECT_EQ(PadOf(padded).low(1), Dim(3));
  EXPECT_EQ(PadOf(padded).high(1), Dim(4));
  const UOp* const part = Shrink(g, x, {0, Dim(k), 2, 5});
  EXPECT_EQ(ShrinkOf(part).end(0), Dim(k));
  EXPECT_EQ(ShrinkOf(part).begin(1), Dim(2));
  EXPECT_EQ(ShrinkOf(part).end(1), Dim(5));
  const UOp* const largest = Reduce(g, Op::kMax, x, {1});
  EXPECT_EQ(ReduceOf(largest).op(), Op::kMax);
  EXPECT_TRUE(ReduceOf(largest).reduces(1));
  EXPECT_FALSE(ReduceOf(largest).reduces(0));
  const UOp* const tuple = node(Op::kTuple, {x, n}, {});
  EXPECT_EQ(GetTupleOf(node(Op::kGetTuple, {tuple}, {1})).index(), 1);
  const UOp* const layout = node(Op::kLayout, {x}, {1, 0});
  EXPECT_EQ(LayoutOf(layout).mesh_axis(), 1);
  EXPECT_EQ(LayoutOf(layout).dim(), 0);
  const auto add = static_cast<int64_t>(Op::kAdd), mul = static_cast<int64_t>(Op::kMul);
  const UOp* const unshard = node(Op::kUnshard, {x}, {1, 3, 2});
  EXPECT_EQ(UnshardOf(unshard).dim(), 1);
  EXPECT_EQ(CollectiveOf(unshard).count(), 3);
  EXPECT_EQ(CollectiveOf(unshard).stride(), 2);
  const UOp* const scatter = node(Op::kReduceScatter, {x}, {mul, 1, 3, 4});
  EXPECT_EQ(ReduceScatterOf(scatter).op(), Op::kMul);
  EXPECT_EQ(ReduceScatterOf(scatter).dim(), 1);
  EXPECT_EQ(CollectiveOf(scatter).stride(), 4);
  const UOp* const all = node(Op::kAllReduce, {x}, {add, 4, 1});
  EXPECT_EQ(AllReduceOf(all).op(), Op::kAdd);
  EXPECT_EQ(CollectiveOf(all).count(), 4);
  const UOp* const exchange = node(Op::kAllToAll, {x}, {1, 0, 3, 1});
  EXPECT_EQ(AllToAllOf(exchange).cut_dim(), 1);
  EXPECT_EQ(AllToAllOf(exchange).join_dim(), 0);
  EXPECT_EQ(CopyOf(node(Op::kCopy, {x}, {2, 4, 1})).root(), 2);
  EXPECT_TRUE(IsRank(Var(g, limits::kRankSlot, 0, 5)));
  EXPECT_FALSE(IsRank(n) || IsRank(x));
  const UOp* const global = node(Op::kGlobal, {}, {5, 60}, DType::kF32);
  const UOp* const range = node(Op::kRange, {}, {8, 60, static_cast<int64_t>(RangeKind::kReduce)});
  const UOp* const index = node(Op::kIndex, {global, range}, {});
  const UOp* const load = node(Op::kLoad, {index}, {});
  EXPECT_EQ(RangeOf(range).id(), 8);
  EXPECT_EQ(RangeOf(range).extent(), 60);
  EXPECT_TRUE(IsRange(range, RangeKind::kReduce));
  EXPECT_FALSE(IsRange(range, RangeKind::kOutput));
  EXPECT_FALSE(IsRange(n, RangeKind::kReduce));
  EXPECT_EQ(GlobalOfAccess(load).slot(), 5);
  EXPECT_EQ(GlobalOfAccess(index).elements(), 60);
  const UOp* const loop = node(Op::kReduceLoop, {load, range}, {static_cast<int64_t>(Op::kAdd)});
  EXPECT_EQ(ReduceOf(loop).op(), Op::kAdd);
  EXPECT_EQ(ReduceOf(loop).ranges(), Sources({range}));
}

TEST(Accessors, ZerosOfBothSigns) {
  Graph g;
  for (const DType dtype : {DType::kF16, DType::kF32, DType::kF64}) {
    EXPECT_TRUE(IsZero(ConstFloat(g, dtype, 0)) && IsZero(ConstFloat(g, dtype, -0.0)));
    EXPECT_TRUE(IsPositiveZero(ConstFloat(g, dtype, 0)));
    EXPECT_FALSE(IsPositiveZero(ConstFloat(g, dtype, -0.0)));
    EXPECT_FALSE(IsZero(ConstFloat(g, dtype, 1)) || IsPositiveZero(ConstFloat(g, dtype, 1)));
  }
  EXPECT_TRUE(IsZero(ConstInt(g, DType::kU8, 0)) && IsPositiveZero(ConstInt(g, DType::kBool, 0)));
  // The smallest i64 has the bits of -0.0.
  const UOp* const least = ConstInt(g, DType::kI64, INT64_MIN);
  EXPECT_FALSE(IsZero(least) || IsPositiveZero(least));
  const UOp* const x = Param(g, 0, DType::kF32, {});
  EXPECT_FALSE(IsZero(x) || IsPositiveZero(x));  // its slot is 0
}

TEST(AccessorsDeathTest, AnotherOperationEndsTheProcess) {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kF32, {4});
  EXPECT_DEATH(RangeOf{x}, "PARAM");
  EXPECT_DEATH(ReduceOf(Reduce(g, Op::kAdd, x, {0})).ranges(), "kReduceLoop");
  EXPECT_DEATH(ConstantBits(x), "is_const");
}

}  // namespace
}  // namespace outboard
