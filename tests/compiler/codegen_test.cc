// Compiled kernels against a walk of their expression.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/compile.h"
#include "tests/compiler/kernel_check.h"
#include "tests/compiler/kernel_shapes.h"

namespace outboard::test {
namespace {

TEST(Codegen, ElementwiseOfEveryLength) {
  for (int64_t n = 1; n <= 40; ++n) {
    Graph g;
    const UOp* const i = Range(g, 0, n);
    const UOp* const x = LoadAt(g, 1, DType::kF32, n, i);
    Check(Sink(g, {StoreAt(g, 0, n, i, Add(g, Mul(g, x, x), x))}));
  }
  Graph g;
  const UOp* const i = Range(g, 0, 1003);
  const UOp* const x = LoadAt(g, 1, DType::kF32, 1003, i);
  Check(Sink(g, {StoreAt(g, 0, 1003, i, Add(g, x, ConstFloat(g, DType::kF32, 1)))}));
}

TEST(Codegen, OneElementWithoutLoops) {
  Graph g;
  const UOp* const zero = ConstIndex(g, 0);
  Check(
      Sink(g, {StoreAt(g, 0, 1, zero,
                       Add(g, LoadAt(g, 1, DType::kI32, 1, zero), ConstInt(g, DType::kI32, 3)))}));
}

constexpr DType kAllTypes[] = {DType::kBool, DType::kI8,     DType::kU8,     DType::kI16,
                               DType::kU16,  DType::kI32,    DType::kU32,    DType::kI64,
                               DType::kU64,  DType::kF8E4M3, DType::kF8E5M2, DType::kF16,
                               DType::kBF16, DType::kF32,    DType::kF64};

// One unit in the last place where a result may be rounded once more.
double LastPlace(DType dtype) {
  switch (dtype) {
    case DType::kF64: return 1e-15;
    case DType::kF32: return 3e-7;
    case DType::kF16: return 1e-3;
    case DType::kBF16: return 8e-3;
    default: return 0.26;
  }
}

// For each type one kernel of all that is exact, and one of the rest.
TEST(Codegen, EveryOperationOfEveryType) {
  constexpr int64_t kCount = 203;
  for (const DType dtype : kAllTypes)
    for (const bool exact : {true, false}) {
      SCOPED_TRACE(std::string(Name(dtype)) + (exact ? " exact" : " rounded"));
      Graph g;
      const UOp* const i = Range(g, 0, kCount);
      std::vector<const UOp*> stores;
      for (int code = 20; code <= 51; ++code) {
        const Op op = static_cast<Op>(code);
        if (!IsAlu(op)) continue;
        if (exact == IsTranscendental(op)) continue;
        std::vector<const UOp*> src;
        for (int s = 0; s < (IsUnary(op) ? 1 : IsBinary(op) ? 2 : 3); ++s)
          src.push_back(op == Op::kWhere && s == 0 ? LoadAt(g, 3, DType::kBool, kCount, i)
                                                   : LoadAt(g, s, dtype, kCount, i));
        const auto value = g.Make(op, DType::kVoid, src);
        if (value.ok())
          stores.push_back(StoreAt(g, 4 + static_cast<int64_t>(stores.size()), kCount, i, *value));
      }
      if (!stores.empty()) Check(Sink(g, stores), exact ? 0 : LastPlace(dtype), /*wild=*/true, 7);
    }
}

TEST(Codegen, EveryCast) {
  constexpr int64_t kCount = 203;
  for (const DType from : kAllTypes) {
    SCOPED_TRACE(std::string(Name(from)));
    Graph g;
    const UOp* const i = Range(g, 0, kCount);
    const UOp* const x = LoadAt(g, 0, from, kCount, i);
    std::vector<const UOp*> exact, rounded, bits;
    for (const DType to : kAllTypes) {
      // To a small float a backend may go through f32.
      const bool twice = IsFloat(to) && ByteWidth(to) < 4 && ByteWidth(from) >= 4;
      const int64_t slot = 1 + static_cast<int64_t>(to);
      (twice ? rounded : exact).push_back(StoreAt(g, slot, kCount, i, Cast(g, x, to)));
      if (ByteWidth(from) == ByteWidth(to) && !IsBool(from) && !IsBool(to))
        bits.push_back(StoreAt(g, slot, kCount, i, Bitcast(g, x, to)));
    }
    Check(Sink(g, exact), 0, /*wild=*/true, 9);
    if (!rounded.empty()) Check(Sink(g, rounded), 1e-2, /*wild=*/true, 9);
    // The bits of a NaN are nobody's promise, so floats are tame where they are looked at.
    if (!bits.empty()) Check(Sink(g, bits), 0, !IsFloat(from), 9);
  }
}

TEST(Codegen, ConvolutionAndItsGradients) {
  for (const Conv& c : {Conv{2, 3, 4, 3, 8, 9}, Conv{1, 2, 7, 5, 24, 24}, Conv{3, 1, 5, 2, 5, 19},
                        Conv{2, 4, 3, 3, 8, 40}, Conv{2, 2, 4, 3, 12, 12}, Conv{2, 3, 9, 3, 8, 8},
                        Conv{2, 1, 6, 5, 28, 28}, Conv{1, 2, 3, 2, 23, 11}}) {
    Graph g;
    Check(ConvForward(g, c), 1e-5);
    Check(ConvWeightGradient(g, c), 1e-5);
    Check(ConvInputGradient(g, c, false), 1e-5);
    Check(ConvInputGradient(g, c, true), 1e-5);
  }
}

TEST(Codegen, MatMulOfOddShapes) {
  for (const auto& [m, n, k] :
       {std::tuple{1, 1, 1}, {3, 5, 7}, {17, 33, 9}, {16, 10, 40}, {5, 64, 31}, {9, 1, 100}}) {
    Graph g;
    Check(MatMul(g, m, n, k), 1e-5);
    Check(MatMul(g, m, n, k, true), 1e-5);
  }
}

TEST(Codegen, SumsOfEveryExtent) {
  for (int64_t n = 1; n <= 40; ++n) {
    Graph g;
    const UOp *i = Range(g, 0, 3), *k = ReduceRange(g, 1, n);
    const UOp* const x = LoadAt(g, 1, DType::kF32, 3 * n, RowMajor(g, {i, k}, {3, n}));
    Check(Sink(g, {StoreAt(g, 0, 3, i, Fold(g, Op::kAdd, x, {k})),
                   StoreAt(g, 2, 3, i, Fold(g, Op::kMax, x, {k}))}),
          1e-6);
    const UOp* const column = LoadAt(g, 1, DType::kF32, 3 * n, RowMajor(g, {k, i}, {n, 3}));
    Check(Sink(g, {StoreAt(g, 0, 3, i, Fold(g, Op::kAdd, column, {k}))}), 1e-6);
  }
}

TEST(Codegen, ReductionsOfEveryType) {
  for (const DType dtype : kAllTypes)
    for (const Op op : {Op::kAdd, Op::kMul, Op::kMax}) {
      if (IsBool(dtype)) continue;
      Graph g;
      SCOPED_TRACE(std::string(Name(op)) + " " + std::string(Name(dtype)));
      const UOp *i = Range(g, 0, 5), *k = ReduceRange(g, 1, 37);
      const UOp* const x = LoadAt(g, 1, dtype, 5 * 37, RowMajor(g, {i, k}, {5, 37}));
      Check(Sink(g, {StoreAt(g, 0, 5, i, Fold(g, op, x, {k}))}), IsFloat(dtype) ? 1e-5 : 0,
            !IsFloat(dtype));
      if (::testing::Test::HasFatalFailure()) return;
    }
}

TEST(Codegen, EmptyReductionsAndOutputs) {
  Graph g;
  const UOp *i = Range(g, 0, 5), *k = ReduceRange(g, 1, 0);
  const UOp* const x = LoadAt(g, 1, DType::kF32, 5, i);
  const UOp* const n = LoadAt(g, 2, DType::kI32, 5, i);
  Check(Sink(g, {StoreAt(g, 0, 5, i, Fold(g, Op::kMul, x, {k})),
                 StoreAt(g, 3, 5, i, Fold(g, Op::kMax, n, {k}))}));
  const UOp* const none = Range(g, 2, 0);
  const auto compiled =
      CompileKernel(Sink(g, {StoreAt(g, 0, 0, none, LoadAt(g, 1, DType::kF32, 0, none))}));
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_EQ(compiled->tasks, 0);
}

// softmax: the reductions depend on fewer loops than the result, and one on another.
TEST(Codegen, ReductionsInsideReductions) {
  for (const int64_t n : {1, 7, 16, 50}) {
    Graph g;
    const UOp *b = Range(g, 0, 6), *j = Range(g, 1, n), *k = ReduceRange(g, 2, n),
              *l = ReduceRange(g, 3, n);
    const auto x = [&](const UOp* at) {
      return LoadAt(g, 1, DType::kF32, 6 * n, RowMajor(g, {b, at}, {6, n}));
    };
    const UOp* const most = Fold(g, Op::kMax, x(k), {k});
    const UOp* const minus = ConstFloat(g, DType::kF32, -1);
    const auto e = [&](const UOp* at) {
      return Alu(g, Op::kExp2, Add(g, x(at), Mul(g, most, minus)));
    };
    const UOp* const total = Fold(g, Op::kAdd, e(l), {l});
    Check(Sink(g,
               {StoreAt(g, 0, 6 * n, RowMajor(g, {b, j}, {6, n}), Alu(g, Op::kFDiv, e(j), total))}),
          1e-5);
  }
}

// A sum whose terms are sums: the inner one is computed anew in each step of the outer one.
TEST(Codegen, ReductionsThatDependOnOuterOnes) {
  for (const int64_t n : {2, 5, 16, 21}) {
    Graph g;
    const UOp *b = Range(g, 0, 6), *c = Range(g, 1, n), *k = ReduceRange(g, 2, 5),
              *l = ReduceRange(g, 3, n), *m = ReduceRange(g, 4, 3);
    const UOp* const x = LoadAt(g, 1, DType::kF32, 6 * 5 * n, RowMajor(g, {b, k, l}, {6, 5, n}));
    const UOp* const y = LoadAt(g, 2, DType::kF32, 5 * n, RowMajor(g, {k, c}, {5, n}));
    const UOp* const z = LoadAt(g, 3, DType::kF32, 15, RowMajor(g, {k, m}, {5, 3}));
    const UOp* const inner = Fold(g, Op::kMax, Add(g, x, y), {l});
    const UOp* const middle = Fold(g, Op::kAdd, Mul(g, z, inner), {m});
    const UOp* const to = RowMajor(g, {b, c}, {6, n});
    Check(Sink(g, {StoreAt(g, 0, 6 * n, to, Fold(g, Op::kAdd, Mul(g, middle, y), {k}))}), 1e-5);
    const UOp* const i = Cast(
        g, Fold(g, Op::kMax, LoadAt(g, 4, DType::kU8, 5 * n, RowMajor(g, {k, l}, {5, n})), {l}),
        DType::kI64);
    const UOp* const picked = GatedLoadAt(g, 1, DType::kF32, 40, Add(g, i, c), Within(g, i, 40 - n),
                                          ConstFloat(g, DType::kF32, 2));
    Check(Sink(g, {StoreAt(g, 0, 6 * n, to, Fold(g, Op::kAdd, Mul(g, picked, y), {k}))}), 1e-5);
  }
}

TEST(Codegen, InPlaceAndSeveralStores) {
  Graph g;
  const UOp* const i = Range(g, 0, 77);
  const UOp *x = LoadAt(g, 0, DType::kF32, 77, i), *y = LoadAt(g, 1, DType::kF32, 77, i);
  Check(Sink(g, {StoreAt(g, 0, 77, i, Add(g, x, y)), StoreAt(g, 1, 77, i, Mul(g, x, y))}));
}

TEST(Codegen, StridesReversalsAndTransposes) {
  for (const int64_t n : {3, 16, 21}) {
    Graph g;
    const UOp *i = Range(g, 0, n), *j = Range(g, 1, n + 2);
    const int64_t count = n * (n + 2);
    const UOp* const to = RowMajor(g, {i, j}, {n, n + 2});
    const auto check = [&](int64_t slots, const UOp* index) {
      Check(Sink(g, {StoreAt(g, 0, count, to, LoadAt(g, 1, DType::kF32, slots, index))}));
    };
    check(count, RowMajor(g, {j, i}, {n + 2, n}));
    for (const int64_t stride : {2, 3, 4, 5})
      check(n * (n + 2) * stride,
            Add(g, Mul(g, i, ConstIndex(g, (n + 2) * stride)), Mul(g, j, ConstIndex(g, stride))));
    check(count, Add(g, Mul(g, i, ConstIndex(g, n + 2)),
                     Add(g, ConstIndex(g, n + 1), Mul(g, j, ConstIndex(g, -1)))));
    check(n + 2, Alu(g, Op::kMod, Add(g, i, j), ConstIndex(g, n + 2)));
    check(n, Alu(g, Op::kIDiv, to, ConstIndex(g, n + 2)));
  }
}

TEST(Codegen, GatesOfEveryKind) {
  for (const int64_t n : {4, 16, 35}) {
    Graph g;
    const UOp *i = Range(g, 0, n), *j = Range(g, 1, n);
    const UOp* const to = RowMajor(g, {i, j}, {n, n});
    const UOp* const seven = ConstFloat(g, DType::kF32, 7);
    const auto shifted = [&](const UOp* at) { return Add(g, at, ConstIndex(g, -2)); };
    const UOp* const from = RowMajor(g, {shifted(i), shifted(j)}, {n - 3, n - 3});
    const int64_t count = (n - 3) * (n - 3);
    const UOp *rows = Within(g, shifted(i), n - 3), *columns = Within(g, shifted(j), n - 3);
    const UOp* const both = Alu(g, Op::kAnd, rows, columns);
    Check(
        Sink(g, {StoreAt(g, 0, n * n, to, GatedLoadAt(g, 1, DType::kF32, count, from, both, seven)),
                 StoreAt(g, 2, n * n, to,
                         GatedLoadAt(g, 3, DType::kI64, count, from, both, ConstIndex(g, 5)))}));
    const UOp* const row = Mul(g, shifted(i), ConstIndex(g, 2));
    Check(
        Sink(g, {StoreAt(g, 0, n * n, to,
                         Add(g, GatedLoadAt(g, 1, DType::kF32, 2 * n - 7, row, rows, seven),
                             GatedLoadAt(g, 2, DType::kF32, n - 3, shifted(j), columns, seven)))}));
    // The whole row gated, lanes too, with a stride and downwards.
    const UOp* const down = Add(g, Mul(g, j, ConstIndex(g, -1)), ConstIndex(g, n - 1));
    Check(Sink(g, {StoreAt(g, 0, n * n, to, GatedLoadAt(g, 1, DType::kF32, n, down, rows, seven)),
                   StoreAt(g, 2, n * n, to,
                           GatedLoadAt(g, 3, DType::kF32, 2 * n, Mul(g, j, ConstIndex(g, 2)), rows,
                                       seven))}));
  }
}

TEST(Codegen, GatherByLoadedIndex) {
  Graph g;
  const UOp *i = Range(g, 0, 9), *j = Range(g, 1, 20);
  const UOp* const index = Cast(g, LoadAt(g, 2, DType::kI32, 9, i), DType::kI64);
  const UOp* const row = Add(g, Mul(g, index, ConstIndex(g, 20)), j);
  const UOp* const value = GatedLoadAt(g, 1, DType::kF32, 13 * 20, row, Within(g, index, 13),
                                       ConstFloat(g, DType::kF32, 0));
  const UOp* const each = Cast(g, LoadAt(g, 4, DType::kI64, 20, j), DType::kI64);
  const UOp* const lanes =
      GatedLoadAt(g, 3, DType::kI16, 50, each, Within(g, each, 50), ConstInt(g, DType::kI16, -4));
  const UOp* const to = RowMajor(g, {i, j}, {9, 20});
  Check(Sink(g, {StoreAt(g, 0, 180, to, value), StoreAt(g, 5, 180, to, lanes)}));
}

TEST(Codegen, IndexArithmeticAsData) {
  Graph g;
  const UOp *i = Range(g, 0, 7), *j = Range(g, 1, 37);
  const UOp* const flat = RowMajor(g, {i, j}, {7, 37});
  const UOp* const odd = Alu(
      g, Op::kMod, Add(g, Mul(g, flat, ConstIndex(g, -3)), ConstIndex(g, 40)), ConstIndex(g, 11));
  const UOp* const big = Mul(g, flat, ConstIndex(g, int64_t{1} << 40));
  Check(Sink(
      g, {StoreAt(g, 0, 259, flat, odd), StoreAt(g, 1, 259, flat, Cast(g, odd, DType::kF32)),
          StoreAt(g, 2, 259, flat, Alu(g, Op::kMax, big, odd)),
          StoreAt(g, 3, 259, flat,
                  Cast(g, Alu(g, Op::kIDiv, big, Add(g, odd, ConstIndex(g, 1))), DType::kU8))}));
}

TEST(Codegen, SameBytesEveryTimeAndNoPromises) {
  std::string objects[2], ir;
  for (std::string& object : objects) {
    Graph g;
    if (&object == &objects[1]) Range(g, 99, 5);  // other addresses and node numbers
    const UOp* const sink = ConvInputGradient(g, {2, 3, 4, 3, 9, 25}, true);
    object = CompileKernel(sink)->object;
    ir = *KernelToLlvmIr(sink);
  }
  EXPECT_EQ(objects[0], objects[1]);
  for (const char* flag : {" nsw", " nuw", " inbounds", " exact", " fast ", " nnan", " ninf",
                           " nsz", " reassoc", " arcp", " afn", " disjoint", " nneg", " range("})
    EXPECT_EQ(ir.find(flag), std::string::npos) << flag;
}

// Expressions as deep as a client likes, and more stores than registers.
TEST(Codegen, DeepAndWideKernels) {
  Graph g;
  const UOp* const i = Range(g, 0, 40);
  const UOp* deep = LoadAt(g, 1, DType::kI32, 40, i);
  for (int k = 0; k < 4000; ++k)
    deep =
        Alu(g, k % 2 ? Op::kAdd : Op::kXor, Alu(g, Op::kShr, deep, ConstInt(g, DType::kI32, k % 3)),
            ConstInt(g, DType::kI32, k * 77));
  const auto compiled = CompileKernel(Sink(g, {StoreAt(g, 0, 40, i, deep)}));
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  std::vector<const UOp*> stores;
  const UOp* const x = LoadAt(g, 0, DType::kF32, 40, i);
  for (int k = 1; k < 60; ++k)
    stores.push_back(StoreAt(g, k, 40, i, Add(g, x, ConstFloat(g, DType::kF32, k))));
  Check(Sink(g, stores));
}

TEST(Codegen, PowersOfTwoOfIntegers) {
  for (const DType dtype : {DType::kU16, DType::kI32, DType::kBool}) {
    SCOPED_TRACE(std::string(Name(dtype)));
    Graph g;
    const UOp* const i = Range(g, 0, 8);
    const UOp* const power = Cast(g, LoadAt(g, 1, dtype, 8, i), DType::kF64);
    const absl::StatusOr<CompiledKernel> compiled =
        CompileKernel(Sink(g, {StoreAt(g, 0, 8, i, Alu(g, Op::kExp2, power))}));
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    EXPECT_TRUE(LoadedKernel::Load(*compiled).ok());  // it calls only what kernels may
  }
}

// Lanes of a divisor that are 0 only where a mask has taken them out.
TEST(Codegen, DivisionsByMaskedLanes) {
  for (const Op op : {Op::kIDiv, Op::kMod}) {
    for (const DType dtype : {DType::kI8, DType::kI16, DType::kI32, DType::kI64, DType::kU16}) {
      SCOPED_TRACE(std::string(Name(op)) + " " + std::string(Name(dtype)));
      Graph g;
      const UOp* const row = Range(g, 0, 5);
      const UOp* const i = Range(g, 1, 5);
      const UOp* const at = Add(g, Mul(g, row, ConstIndex(g, 5)), i);
      const UOp* const zero = ConstInt(g, dtype, 0);
      const UOp* const x =
          Where(g, LoadAt(g, 1, DType::kBool, 25, at), Cast(g, i, dtype), zero);
      Check(Sink(g, {StoreAt(g, 0, 25, at, Alu(g, op, x, x))}));
    }
  }
}

TEST(Codegen, RefusesWhatIsNoKernel) {
  Graph g;
  const UOp *i = Range(g, 0, 4), *k = ReduceRange(g, 1, 4);
  const UOp* const loose = Sink(g, {StoreAt(g, 0, 4, i, LoadAt(g, 1, DType::kF32, 4, k))});
  EXPECT_EQ(CompileKernel(loose).status().code(), absl::StatusCode::kInvalidArgument);
  const UOp* const twice =
      Sink(g, {StoreAt(g, 0, 4, i, LoadAt(g, 1, DType::kF32, 4, Range(g, 0, 3)))});
  EXPECT_EQ(CompileKernel(twice).status().code(), absl::StatusCode::kInvalidArgument);
  const UOp* const value = Sink(g, {LoadAt(g, 1, DType::kF32, 4, i)});
  EXPECT_EQ(CompileKernel(value).status().code(), absl::StatusCode::kInvalidArgument);
  const UOp* const fine = Sink(g, {StoreAt(g, 0, 4, i, LoadAt(g, 1, DType::kF32, 4, i))});
  EXPECT_EQ(CompileKernel(fine, {.cpu = "abacus"}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace outboard::test
