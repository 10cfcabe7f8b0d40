// Products of matrices by the matrix units of a GPU (compiler/optimize/operands/mma.h): their
// programs in the interpreter, their PTX on the PTX machine, both against a walk of the kernel, and
// what NVIDIA's assembler makes of it, where there is one.
#include <gmock/gmock.h>

#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "absl/strings/match.h"
#include "base/check.h"
#include "compiler/search/neighbours.h"
#include "tests/compiler/kernel_shapes.h"
#include "tests/compiler/mma_check.h"
#include "tests/compiler/ptx_assembler.h"

namespace outboard::test {
namespace {

TEST(Mma, EveryLayoutOfOperands) {
  const MmaTile tile{64, 64, 32, 2, 2, 3};
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const bool a_turned : {false, true})
      for (const bool b_turned : {false, true})
        for (const bool y_turned : {false, true}) {
          CheckGpuProduct({.m = 64,
                           .n = 128,
                           .k = 160,
                           .a_turned = a_turned,
                           .b_turned = b_turned,
                           .dtype = dtype,
                           .y_turned = y_turned},
                          &tile);
          if (HasFatalFailure()) return;
        }
}

// Rests of rows, columns and steps, and operands that cannot be copied 16 bytes at a time.
TEST(Mma, ShapesThatNoTileDivides) {
  const MmaTile tile{32, 64, 32, 2, 2, 2};
  const int64_t sizes[][3] = {{100, 70, 33}, {17, 65, 40},  {64, 64, 20},  {31, 33, 100},
                              {2, 8, 16},    {40, 200, 64}, {33, 72, 1000}};
  for (const auto& [m, n, k] : sizes)
    for (const bool a_turned : {false, true})
      for (const bool b_turned : {false, true}) {
        CheckGpuProduct({.m = m, .n = n, .k = k, .a_turned = a_turned, .b_turned = b_turned},
                        &tile);
        if (HasFatalFailure()) return;
      }
}

TEST(Mma, EpiloguesBatchesAndOperandsThatAreComputed) {
  const MmaTile tile{64, 64, 32, 2, 2, 3};
  for (const Epilogue epilogue :
       {Epilogue::kBiasAndRelu, Epilogue::kResidual, Epilogue::kTwoResults})
    for (const DType result : {DType::kF32, DType::kBF16})
      for (const int64_t n : {64, 90})
        for (const bool cast_a : {false, true}) {
          CheckGpuProduct({.batch = 2,
                           .m = 70,
                           .n = n,
                           .k = 40,
                           .result = result,
                           .epilogue = epilogue,
                           .cast_a = cast_a},
                          &tile);
          if (HasFatalFailure()) return;
        }
  // Gates are zeros in shared memory.
  for (const bool a_turned : {false, true})
    CheckGpuProduct({.m = 64, .n = 64, .k = 64, .a_turned = a_turned, .a_rows = 40}, &tile);
}

TEST(Mma, EveryTileOfTheHeuristic) {
  const MmaTile tiles[] = {{128, 128, 32, 2, 2, 3}, {128, 128, 32, 2, 4, 3}, {128, 64, 32, 2, 2, 4},
                           {64, 128, 32, 2, 2, 4},  {32, 128, 32, 1, 4, 4},  {128, 32, 32, 4, 1, 4},
                           {64, 32, 32, 2, 2, 4},   {32, 32, 32, 2, 2, 4},   {16, 64, 64, 1, 4, 4},
                           {64, 16, 64, 4, 1, 4},   {64, 64, 64, 2, 2, 2},   {64, 64, 16, 2, 2, 3},
                           {128, 128, 16, 2, 2, 4}, {128, 128, 32, 2, 2, 4},
                           {128, 256, 32, 2, 4, 4}, {256, 128, 32, 4, 2, 3}};
  for (const MmaTile& tile : tiles)
    for (const bool turned : {false, true}) {
      CheckGpuProduct({.m = 128, .n = 136, .k = 104, .a_turned = turned, .b_turned = turned}, &tile,
                      turned ? "sm_80" : "sm_90a");
      if (HasFatalFailure()) return;
    }
}

// Where sums take half of a thread's registers and much is computed of each, the bias is loaded for
// each row of 8, by instructions that the assembler does not merge. Otherwise once for all rows.
TEST(Mma, OfManySumsAndOperations_TheBiasIsLoadedForEachRow) {
  using program::Code;
  using program::Instruction;
  const MmaTile many{128, 256, 32, 2, 4, 4}, few{128, 128, 32, 2, 4, 4};
  constexpr size_t kRows = 8, kPairs = 8;  // of a thread of `many`; with `few` half the pairs
  struct Case {
    MmaTile tile;
    Epilogue epilogue;
    size_t loads;
  };
  for (const Case& c : {Case{many, Epilogue::kBiasAndPolynomial, kRows * kPairs},
                        Case{many, Epilogue::kBiasAndRelu, kPairs},
                        Case{few, Epilogue::kBiasAndPolynomial, kPairs / 2}}) {
    SCOPED_TRACE(testing::Message() << codegen::MmaAmount(c.tile) << " epilogue "
                                    << static_cast<int>(c.epilogue));
    Graph g;
    const UOp* const sink = KernelOf(g, {.m = 128, .n = 256, .k = 64, .epilogue = c.epilogue});
    const Target target = CudaTarget("sm_80", kMultiprocessors);
    const std::vector<Opt> opts = {{OptKind::kMma, 2, codegen::MmaAmount(c.tile)}};
    const codegen::LoopNest kernel = *codegen::AnalyzeKernel(sink);
    const auto program = program::ExpandMma(kernel, **codegen::PlanMma(kernel, target, &opts));
    ASSERT_TRUE(program.ok()) << program.status();
    std::map<int64_t, size_t> loads;  // of the bias, by number
    for (const Instruction& i : program->code)
      if (i.code == Code::kLoad && program->code[i.src[0]].code == Code::kBuffer) ++loads[i.imm[0]];
    size_t all = 0;
    for (const auto& [again, count] : loads) all += count;
    EXPECT_EQ(all, c.loads);
    EXPECT_EQ(loads.size(), c.loads == kRows * kPairs ? kRows : 1);
    const auto compiled = CompileKernel(sink, {.target = target, .opts = opts});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    EXPECT_EQ(absl::StrContains(compiled->object, "ld.global.nc"), loads.size() == 1);
  }
}

// Whole tiles, and those that reach beyond rows and columns, where each load has its branch.
TEST(Mma, TheBiasOfEachRow_IsThatOfItsColumns) {
  const MmaTile tile{128, 256, 32, 2, 4, 4};
  for (const auto& [m, n] : {std::pair{128, 256}, {200, 300}, {77, 263}})
    for (const int64_t batch : {1, 2}) {
      CheckGpuProduct(
          {.batch = batch, .m = m, .n = n, .k = 24, .epilogue = Epilogue::kBiasAndPolynomial},
          &tile, "sm_80");
      if (HasFatalFailure()) return;
    }
}

// One step, fewer steps than stages, as many, more.
TEST(Mma, AnyNumberOfSteps) {
  for (const int64_t stages : {2, 3, 4})
    for (const int64_t k : {8, 32, 64, 96, 128, 136}) {
      const MmaTile tile{32, 32, 32, 2, 2, stages};
      CheckGpuProduct({.m = 32, .n = 32, .k = k}, &tile);
      CheckGpuProduct({.m = 32, .n = 32, .k = k, .cast_a = true}, &tile);
      if (HasFatalFailure()) return;
    }
}

TEST(Mma, TheHeuristicTakesMatrixUnits) {
  for (const auto& [m, n, k] : {std::tuple{8, 9, 500}, {300, 200, 64}, {512, 32, 64}}) {
    CheckGpuProduct({.m = m, .n = n, .k = k});
    CheckGpuProduct({.m = m, .n = n, .k = k, .dtype = DType::kF16, .result = DType::kF16});
  }
}

// y[b,oc,oh,ow] = sum x[b,ic,oh+kh-1,ow+kw-1] * w[oc,ic,kh,kw] with zeros around x, in either order
// of channels; its rows are b, oh and ow, its steps ic, kh and kw.
const UOp* Bf16Convolution(Graph& g, int64_t batch, int64_t in, int64_t out, int64_t side,
                           bool channels_last) {
  const UOp *b = Range(g, 0, batch), *oc = Range(g, 1, out), *oh = Range(g, 2, side),
            *ow = Range(g, 3, side);
  const UOp *ic = ReduceRange(g, 4, in), *kh = ReduceRange(g, 5, 3), *kw = ReduceRange(g, 6, 3);
  const UOp *h = Add(g, Add(g, oh, kh), ConstIndex(g, -1)),
            *w = Add(g, Add(g, ow, kw), ConstIndex(g, -1));
  const UOp* const gate = Alu(g, Op::kAnd, Within(g, h, side), Within(g, w, side));
  const UOp* const at = channels_last ? RowMajor(g, {b, h, w, ic}, {batch, side, side, in})
                                      : RowMajor(g, {b, ic, h, w}, {batch, in, side, side});
  const UOp* const x = GatedLoadAt(g, 1, DType::kBF16, batch * in * side * side, at, gate,
                                   ConstFloat(g, DType::kBF16, 0));
  const UOp* const weight = LoadAt(g, 2, DType::kBF16, out * in * 9,
                                   channels_last ? RowMajor(g, {oc, kh, kw, ic}, {out, 3, 3, in})
                                                 : RowMajor(g, {oc, ic, kh, kw}, {out, in, 3, 3}));
  const UOp* const sum = Fold(
      g, Op::kAdd, Mul(g, Cast(g, x, DType::kF32), Cast(g, weight, DType::kF32)), {ic, kh, kw});
  return Sink(g, {StoreAt(g, 0, batch * out * side * side,
                          channels_last ? RowMajor(g, {b, oh, ow, oc}, {batch, side, side, out})
                                        : RowMajor(g, {b, oc, oh, ow}, {batch, out, side, side}),
                          sum)});
}

TEST(Mma, Convolutions) {
  const MmaTile tile{32, 32, 32, 2, 2, 3};
  for (const bool channels_last : {false, true})
    for (const int64_t in : {3, 16}) {
      SCOPED_TRACE(testing::Message() << in << " channels, last " << channels_last);
      Graph g;
      const UOp* const sink = Bf16Convolution(g, 2, in, 24, 9, channels_last);
      const codegen::LoopNest kernel = *codegen::AnalyzeKernel(sink);
      CheckKernel(sink, &tile, kernel.groups[0].ranges[0], 0);
      if (HasFatalFailure()) return;
    }
}

// What the gradients of a convolution sum: terms of bf16, rounded each; of the input's, terms that
// are 0 where the gradient that they read does not exist. `exact`: the same without both.
const UOp* Summed(Graph& g, const UOp* x, const UOp* y, const UOp* gate,
                  const std::vector<const UOp*>& over, bool exact) {
  const UOp* term = Mul(g, Cast(g, x, DType::kF32), Cast(g, y, DType::kF32));
  if (exact) return Cast(g, Fold(g, Op::kAdd, term, over), DType::kBF16);
  term = Cast(g, term, DType::kBF16);
  if (gate != nullptr) term = Where(g, gate, term, ConstFloat(g, DType::kBF16, 0));
  return Fold(g, Op::kAdd, term, over);
}

// dw[oc,kh,kw,ic] = sum x[b,oh+kh-1,ow+kw-1,ic] * dy[b,oh,ow,oc]; slots dw, x, dy.
const UOp* WeightGradient(Graph& g, int64_t batch, int64_t in, int64_t out, int64_t side,
                          bool exact) {
  const UOp *oc = Range(g, 0, out), *kh = Range(g, 1, 3), *kw = Range(g, 2, 3),
            *ic = Range(g, 3, in);
  const UOp *b = ReduceRange(g, 4, batch), *oh = ReduceRange(g, 5, side),
            *ow = ReduceRange(g, 6, side);
  const UOp *h = Add(g, Add(g, oh, kh), ConstIndex(g, -1)),
            *w = Add(g, Add(g, ow, kw), ConstIndex(g, -1));
  const UOp* const gate = Alu(g, Op::kAnd, Within(g, h, side), Within(g, w, side));
  const UOp* const x = GatedLoadAt(g, 1, DType::kBF16, batch * side * side * in,
                                   RowMajor(g, {b, h, w, ic}, {batch, side, side, in}), gate,
                                   ConstFloat(g, DType::kBF16, 0));
  const UOp* const dy = LoadAt(g, 2, DType::kBF16, batch * side * side * out,
                               RowMajor(g, {b, oh, ow, oc}, {batch, side, side, out}));
  return Sink(g, {StoreAt(g, 0, out * 9 * in, RowMajor(g, {oc, kh, kw, ic}, {out, 3, 3, in}),
                          Summed(g, dy, x, nullptr, {b, oh, ow}, exact))});
}

// dx[b,h,w,ic] = sum dy[b,h-kh+1,w-kw+1,oc] * w[oc,kh,kw,ic]; slots dx, dy, w.
const UOp* InputGradient(Graph& g, int64_t batch, int64_t in, int64_t out, int64_t side,
                         bool exact) {
  const UOp *b = Range(g, 0, batch), *h = Range(g, 1, side), *w = Range(g, 2, side),
            *ic = Range(g, 3, in);
  const UOp *oc = ReduceRange(g, 4, out), *kh = ReduceRange(g, 5, 3), *kw = ReduceRange(g, 6, 3);
  const auto back = [&](const UOp* place, const UOp* k) {
    return Add(g, Add(g, place, Mul(g, k, ConstIndex(g, -1))), ConstIndex(g, 1));
  };
  const UOp *oh = back(h, kh), *ow = back(w, kw);
  const UOp* const gate = Alu(g, Op::kAnd, Within(g, oh, side), Within(g, ow, side));
  const UOp* const dy = GatedLoadAt(g, 1, DType::kBF16, batch * side * side * out,
                                    RowMajor(g, {b, oh, ow, oc}, {batch, side, side, out}), gate,
                                    ConstFloat(g, DType::kBF16, 0));
  const UOp* const weight = LoadAt(g, 2, DType::kBF16, out * 9 * in,
                                   RowMajor(g, {oc, kh, kw, ic}, {out, 3, 3, in}));
  return Sink(g, {StoreAt(g, 0, batch * side * side * in,
                          RowMajor(g, {b, h, w, ic}, {batch, side, side, in}),
                          Summed(g, dy, weight, gate, {oc, kh, kw}, exact))});
}

TEST(Mma, GradientsOfConvolutions) {
  const MmaTile tile{32, 32, 32, 2, 2, 3};
  for (const int64_t in : {3, 16})
    for (const bool of_weights : {false, true}) {
      SCOPED_TRACE(testing::Message() << in << " channels, of weights " << of_weights);
      Graph g;
      const auto kernel = [&](bool exact) {
        return of_weights ? WeightGradient(g, 2, in, 24, 9, exact)
                          : InputGradient(g, 2, in, 24, 9, exact);
      };
      const UOp* const sink = kernel(false);
      const codegen::LoopNest nest = *codegen::AnalyzeKernel(sink);
      CheckKernel(sink, &tile, nest.groups[0].ranges[0], 0, "sm_90", true, kernel(true));
      if (HasFatalFailure()) return;
    }
  // A gate that no operand has would let terms in.
  Graph g;
  const UOp *m = Range(g, 0, 64), *n = Range(g, 1, 64), *k = ReduceRange(g, 2, 64);
  const UOp* const sink = Sink(
      g, {StoreAt(g, 0, 64 * 64, RowMajor(g, {m, n}, {64, 64}),
                  Summed(g, LoadAt(g, 1, DType::kBF16, 4096, RowMajor(g, {m, k}, {64, 64})),
                         LoadAt(g, 2, DType::kBF16, 4096, RowMajor(g, {k, n}, {64, 64})),
                         Alu(g, Op::kCmpLt, k, m), {k}, false))});
  EXPECT_EQ(codegen::FindMmaProduct(*codegen::AnalyzeKernel(sink)).status().message(),
            "terms are 0 where neither operand is");
}

TEST(Mma, RandomProducts) {
  const char* const text = std::getenv("OUTBOARD_KERNELS");
  const int count = text != nullptr ? std::atoi(text) : 24;
  for (int seed = 0; seed < count; ++seed) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    const auto pick = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
    const bool rests = pick(2) == 0;
    GpuProduct p{.batch = 1 + pick(3),
                 .m = rests ? 1 + pick(90) : 16 * (1 + pick(6)),
                 .n = rests ? 1 + pick(90) : 16 * (1 + pick(6)),
                 .k = rests ? 1 + pick(200) : 8 * (1 + pick(20)),
                 .a_turned = pick(2) == 0,
                 .b_turned = pick(2) == 0,
                 .dtype = pick(2) == 0 ? DType::kBF16 : DType::kF16,
                 .result = pick(2) == 0 ? DType::kBF16 : DType::kF32,
                 .epilogue = static_cast<Epilogue>(pick(4)),
                 .cast_a = pick(4) == 0,
                 .y_turned = pick(3) == 0};
    if (p.m == 1 || p.n == 1 || p.k == 1) continue;
    const MmaTile tile{
        int64_t{16} << pick(3), int64_t{16} << pick(3), int64_t{16} << pick(2), 1, 1, 2 + pick(3)};
    CheckGpuProduct(p, &tile, pick(2) == 0 ? "sm_80" : "sm_90");
    if (HasFatalFailure()) FAIL() << "seed " << seed;
  }
}

TEST(Mma, WhatDoesNotFit_IsRefusedByName) {
  Graph g;
  const codegen::LoopNest kernel =
      *codegen::AnalyzeKernel(KernelOf(g, {.m = 64, .n = 64, .k = 64}));
  const Target target = CudaTarget("sm_80", kMultiprocessors);
  const auto status = [&](const MmaTile& tile, int64_t axis = 2) {
    const std::vector<Opt> opts = {{OptKind::kMma, axis, codegen::MmaAmount(tile)}};
    return codegen::PlanMma(kernel, target, &opts).status();
  };
  const MmaTile fits{64, 64, 32, 2, 2, 3};
  EXPECT_EQ(codegen::MmaTileOf(codegen::MmaAmount(fits)), fits);
  EXPECT_TRUE(status(fits).ok());
  EXPECT_EQ(status({128, 256, 64, 2, 4, 4}).message(),
            "MMA: 196608 bytes of shared memory of a block; the target has 166912");
  EXPECT_EQ(status({128, 128, 16, 4, 4, 2}).message(),
            "MMA: 512 threads of a block; the target has 256");
  EXPECT_TRUE(absl::IsResourceExhausted(status({128, 128, 32, 1, 1, 2})));
  EXPECT_TRUE(absl::IsInvalidArgument(status({48, 64, 32, 1, 1, 2})));
  EXPECT_TRUE(absl::IsInvalidArgument(status({64, 64, 8, 2, 2, 2})));
  EXPECT_TRUE(absl::IsInvalidArgument(status({64, 64, 32, 2, 2, 1})));
  EXPECT_TRUE(absl::IsInvalidArgument(status(fits, 1)));
  MmaTile ordered = fits;
  ordered.order = 2;
  EXPECT_EQ(codegen::MmaAmount(ordered), 2064064032223);
  EXPECT_EQ(codegen::MmaTileOf(codegen::MmaAmount(ordered)), ordered);
  EXPECT_EQ(status(ordered).message(),
            "MMA: the order does not divide the number of tiles below each other");
  ordered.order = 1'000'000;
  EXPECT_TRUE(absl::IsInvalidArgument(status(ordered)));
}

// Blocks in every order compute every tile once; the order says which are neighbours.
TEST(Mma, BlocksInAnyOrder) {
  for (const int64_t order : {0, 1, 2, 3, 6}) {
    MmaTile tile{32, 32, 32, 2, 2, 2};
    tile.order = order;
    const GpuProduct product = {.batch = 2, .m = 170, .n = 70, .k = 40};  // 6 by 3 tiles
    CheckGpuProduct(product, &tile);
    if (HasFatalFailure()) return;
  }
}

// The search tries orders, of those alone that fit the product.
TEST(Mma, TheSearchTriesOrders) {
  Graph g;
  const UOp* const sink = KernelOf(g, {.m = 64 * 12, .n = 256, .k = 64});
  const Target target = CudaTarget("sm_80", kMultiprocessors);
  const auto orders = [&](int64_t order) {
    MmaTile tile{64, 64, 32, 2, 2, 3};
    tile.order = order;
    std::set<int64_t> found;
    for (const search::Neighbour& other :
         search::Neighbours(sink, {{OptKind::kMma, 2, codegen::MmaAmount(tile)}}, target))
      if (MmaTile next = codegen::MmaTileOf(other.opts[0].amount); next.order != order) {
        found.insert(next.order);
        next.order = order;
        EXPECT_EQ(next, codegen::MmaTileOf(codegen::MmaAmount(tile))) << "one move at a time";
      }
    return found;
  };
  EXPECT_EQ(orders(0), (std::set<int64_t>{2})) << "it is 4 by itself, and 8 does not divide 12";
  EXPECT_EQ(orders(6), (std::set<int64_t>{3, 12}));
}

// What is chosen without measurement: the largest tile that there is room for, four stages where
// that leaves as many blocks at once, and smaller tiles where large ones leave a device idle.
TEST(Mma, TheChoice_FollowsTheRoomOfABlock) {
  struct Chosen {
    const char* arch;
    int64_t shared_bytes_max;  // 0: the kind's
    int multiprocessors;
    int64_t m, n;
    MmaTile tile;
  };
  const Chosen cases[] = {
      {"sm_80", 0, 108, 4096, 4096, {128, 256, 32, 2, 4, 4}},
      {"sm_80", 0, 108, 8192, 3072, {128, 128, 32, 2, 2, 4}},
      {"sm_80", 0, 108, 1024, 1024, {64, 64, 32, 2, 2, 4}},
      {"sm_89", 0, 128, 4096, 4096, {128, 256, 32, 2, 4, 4}},
      // Three stages of two blocks fit, four do not.
      {"sm_89", 0, 128, 8192, 768, {128, 128, 32, 2, 2, 3}},
      // A device that runs code for sm_80, and has no more than an sm_86.
      {"sm_80", 99 << 10, 84, 4096, 4096, {128, 256, 32, 2, 4, 4}},
      {"sm_80", 48 << 10, 84, 1024, 1024, {128, 128, 32, 2, 4, 3}},
  };
  for (const Chosen& chosen : cases) {
    SCOPED_TRACE(testing::Message() << chosen.arch << " " << chosen.m << " " << chosen.n);
    Graph g;
    const codegen::LoopNest kernel =
        *codegen::AnalyzeKernel(KernelOf(g, {.m = chosen.m, .n = chosen.n, .k = 4096}));
    Target target = CudaTarget(chosen.arch, chosen.multiprocessors);
    if (chosen.shared_bytes_max > 0) target.shared_bytes_max = chosen.shared_bytes_max;
    const auto plan = codegen::PlanMma(kernel, target, nullptr);
    ASSERT_TRUE(plan.ok() && plan->has_value());
    EXPECT_EQ(codegen::MmaAmount((*plan)->tile), codegen::MmaAmount(chosen.tile));
  }
}

TEST(Mma, IsAssembledWithoutSpills) {
  const std::string ptxas = FindPtxas();
  if (ptxas.empty()) GTEST_SKIP() << "no ptxas in PATH or OUTBOARD_PTXAS";
  for (const char* const arch : {"sm_80", "sm_90a"})
    for (const MmaTile& tile : {MmaTile{128, 128, 32, 2, 2, 3}, MmaTile{128, 128, 32, 2, 4, 3},
                                MmaTile{128, 64, 32, 2, 2, 4}, MmaTile{64, 64, 32, 2, 2, 4},
                                MmaTile{128, 128, 32, 2, 2, 4}, MmaTile{128, 128, 32, 2, 4, 4},
                                MmaTile{128, 256, 32, 2, 4, 4}, MmaTile{256, 128, 32, 4, 2, 3},
                                MmaTile{128, 256, 32, 2, 4, 2}})
      for (const int64_t m : {512, 500})
        for (const bool turned : {false, true}) {
          Graph g;
          const GpuProduct p{.m = m,
                             .n = 512,
                             .k = 512,
                             .a_turned = turned,
                             .b_turned = turned,
                             .result = DType::kBF16,
                             .epilogue = Epilogue::kResidual};
          CompileOptions options{.target = CudaTarget(arch, kMultiprocessors)};
          options.opts = {{OptKind::kMma, 2, codegen::MmaAmount(tile)}};
          const auto compiled = CompileKernel(KernelOf(g, p), options);
          ASSERT_TRUE(compiled.ok()) << compiled.status();
          const auto stack_bytes = StackBytesOf(ptxas, compiled->object, arch);
          ASSERT_TRUE(stack_bytes.ok()) << stack_bytes.status();
          EXPECT_EQ(*stack_bytes, 0) << arch << " " << codegen::MmaAmount(tile) << " rows " << m
                                    << " turned " << turned;
        }
}

}  // namespace
}  // namespace outboard::test
