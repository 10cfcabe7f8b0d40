// Reshapes that join and split dimensions of VARs: n * 2 is n rows of 2, for every value of n.
#include <gtest/gtest.h>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/dims.h"
#include "tests/compiler/harness.h"

namespace outboard {
namespace {

class SymbolicReshapeTest : public testing::Test {
 protected:
  Dim Times(const Dim& dim, int64_t factor) {
    return Dim(Mul(g, dim.expression(), ConstIndex(g, factor)));
  }
  const UOp* Make(const UOp* x, const Shape& dims) { return Reshape(g, x, dims); }

  // `root`, of a PARAM of n x `width` floats, on all engines and for all values of n and m.
  void Compare(const UOp* root, int64_t width) {
    const UOp* const sink = Sink(g, {root});
    for (int64_t rows = 0; rows <= kMost; ++rows)
      for (int64_t other = 1; other <= 3; ++other) {
        std::vector<double> values(rows * width);
        for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i) + 0.5;
        const Binding bindings[] = {{0, rows}, {1, other}};
        const HostTensor param = test::Floats(DType::kF32, {rows, width}, values);
        test::ExpectSame(sink, {&param, 1}, std::span(bindings).first(uses_m ? 2 : 1));
        if (!uses_m) break;
      }
  }

  static constexpr int64_t kMost = 5;
  Graph g;
  bool uses_m = false;
  const Dim n = Dim(Var(g, 0, 0, kMost)), m = Dim(Var(g, 1, 1, 3));
};

TEST_F(SymbolicReshapeTest, RowsJoinToOneAxis) {
  const UOp* const x = Param(g, 0, DType::kF32, {n, Dim(2)});
  const UOp* const flat = Make(x, {Times(n, 2)});
  Compare(flat, 2);
  Compare(
      Mul(g, flat,
          Cast(g, g.MakeChecked(Op::kIota, DType::kI32, {Times(n, 2).expression()}, {kSymbolicDim}),
               DType::kF32)),
      2);
}

TEST_F(SymbolicReshapeTest, OneAxisSplitsAnotherWay) {
  const UOp* const x = Param(g, 0, DType::kF32, {n, Dim(6)});
  Compare(Make(x, {Times(n, 2), Dim(3)}), 6);
  Compare(Make(x, {Dim(2), Times(n, 3)}), 6);
  Compare(Make(Make(x, {Times(n, 6)}), {Dim(3), n, Dim(2)}), 6);
  Compare(g.MakeChecked(Op::kReduce, DType::kF32, {Make(x, {Dim(3), Times(n, 2)})},
                        {static_cast<int64_t>(Op::kAdd), 1}),
          6);
}

TEST_F(SymbolicReshapeTest, RepeatedAndJoined) {
  uses_m = true;
  const UOp* const x = Param(g, 0, DType::kF32, {n, Dim(2)});
  const UOp* const apart = Expand(g, Make(x, {Dim(1), n, Dim(2), Dim(1)}), {Dim(2), n, Dim(2), m});
  const Dim both(Mul(g, n.expression(), m.expression()));
  Compare(Make(apart, {Times(n, 2), Dim(Mul(g, m.expression(), ConstIndex(g, 2)))}), 2);
  Compare(Make(apart, {Dim(4), both}), 2);
}

// A VAR of one value is a VAR in all dimensions that have it.
TEST_F(SymbolicReshapeTest, AVarOfOneValue) {
  for (const int64_t value : {0, 1}) {
    const UOp* const one = Var(g, 1, value, value);
    const Dim end(Add(g, Add(g, Var(g, 0, 1, 4), one), ConstIndex(g, -value)));
    const Dim rows = ValueOrDie(SubtractDims(g, end, Dim(one)));
    const UOp* const x = Param(g, 0, DType::kF32, {Dim(5), Dim(2)});
    const UOp* const part = g.MakeChecked(Op::kShrink, DType::kF32, {x, one, end.expression()},
                                          {kSymbolicDim, kSymbolicDim, 0, 2});
    const UOp* const sink = Sink(g, {Make(part, {Dim(2), rows}), Make(part, {Times(rows, 2)})});
    const HostTensor param = test::Floats(DType::kF32, {5, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
    for (int64_t n = 1; n <= 4; ++n) {
      const Binding bindings[] = {{0, n}, {1, value}};
      test::ExpectSame(sink, {&param, 1}, bindings);
    }
  }
}

TEST_F(SymbolicReshapeTest, OtherCountsAreRefused) {
  const UOp* const x = Param(g, 0, DType::kF32, {n, Dim(2)});
  for (const Shape& dims :
       std::vector<Shape>{{Times(n, 3)}, {Times(m, 2)}, {n}, {Times(n, 2), m}}) {
    std::vector<int64_t> arg;
    std::vector<const UOp*> src = {x};
    AppendDims(dims, arg, src);
    EXPECT_EQ(g.Make(Op::kReshape, DType::kF32, src, arg).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(SymbolicReshapeTest, FactorsOfADimension) {
  const UOp* const product = Mul(g, Mul(g, n.expression(), ConstIndex(g, 6)), m.expression());
  const DimFactors factors = FactorsOf(Dim(product));
  EXPECT_EQ(factors.number, 6);
  EXPECT_EQ(factors.expressions, (std::vector<const UOp*>{n.expression(), m.expression()}));
  const UOp* const sum = Add(g, n.expression(), ConstIndex(g, 1));
  EXPECT_EQ(FactorsOf(Dim(sum)).expressions, std::vector<const UOp*>{sum});
  EXPECT_EQ(FactorsOf(Dim(12)).number, 12);
  // Factors of a product that may wrap, or of a negative number, stay together.
  const UOp* const wide =
      Mul(g, Mul(g, n.expression(), ConstIndex(g, INT64_MAX)), ConstIndex(g, 4));
  EXPECT_EQ(FactorsOf(Dim(wide)).number, 4);
}

}  // namespace
}  // namespace outboard
