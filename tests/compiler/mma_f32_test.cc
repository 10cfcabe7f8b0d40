// Products of f32 by matrix units: three of TF32 within the bound that f32 has, or one where a
// program allows it; and products of 8-bit floats (compiler/optimize/operands/mma.h,
// docs/semantics.md).
#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "absl/strings/match.h"
#include "base/check.h"
#include "tests/compiler/mma_check.h"
#include "tests/compiler/ptx_assembler.h"

namespace outboard::test {
namespace {

constexpr MmaTile kTile = {64, 64, 16, 2, 2, 3};

// Numbers of few digits are exact in every part.
TEST(MmaF32, EveryLayoutOfOperands) {
  for (const bool tf32 : {false, true})
    for (const bool a_turned : {false, true})
      for (const bool b_turned : {false, true})
        for (const bool y_turned : {false, true}) {
          CheckGpuProduct({.m = 64,
                           .n = 128,
                           .k = 80,
                           .a_turned = a_turned,
                           .b_turned = b_turned,
                           .dtype = DType::kF32,
                           .y_turned = y_turned,
                           .tf32 = tf32},
                          &kTile);
          if (HasFatalFailure()) return;
        }
}

TEST(MmaF32, ShapesTilesAndEpilogues) {
  const MmaTile tiles[] = {{32, 64, 16, 2, 2, 2},
                           {32, 32, 8, 1, 2, 4},
                           {128, 128, 16, 2, 4, 3},
                           {64, 16, 32, 4, 1, 4},
                           {32, 32, 32, 1, 1, 2}};
  const int64_t sizes[][3] = {{100, 70, 53}, {17, 65, 60}, {33, 72, 200}, {64, 64, 64}};
  int number = 0;
  for (const auto& [m, n, k] : sizes)
    for (const MmaTile& tile : tiles)
      for (const bool turned : {false, true}) {
        ++number;
        CheckGpuProduct({.batch = 1 + number % 2,
                         .m = m,
                         .n = n,
                         .k = k,
                         .a_turned = turned,
                         .b_turned = number % 3 == 0,
                         .dtype = DType::kF32,
                         .epilogue = static_cast<Epilogue>(number % 4),
                         .a_rows = number % 5 == 0 ? m - 7 : 0,
                         .tf32 = number % 4 == 1},
                        &tile, number % 2 == 0 ? "sm_80" : "sm_90");
        if (HasFatalFailure()) return;
      }
}

// ---- bounds

// How numbers of an operand are made.
using Make = std::function<float(std::mt19937&)>;
float Uniform(std::mt19937& random, float low, float high) {
  return low + (high - low) * static_cast<float>(random() >> 8) * 0x1p-24f;
}
struct Kind {
  const char* name;
  Make make;
};
const Kind kKinds[] = {
    {"both signs", [](std::mt19937& r) { return Uniform(r, -1, 1); }},
    {"one sign", [](std::mt19937& r) { return Uniform(r, 0, 1); }},
    // What is cut off of these is always the same.
    {"all digits", [](std::mt19937&) { return std::bit_cast<float>(0x3f8007ffu); }},
    {"halves of TF32",
     [](std::mt19937& r) {
       return std::bit_cast<float>(0x3f800fffu | static_cast<uint32_t>(r() & 0x3ff) << 13);
     }},
    {"many sizes",
     [](std::mt19937& r) {
       return std::ldexp(Uniform(r, -1, 1), static_cast<int>(r() % 40) - 20);
     }},
    {"small", [](std::mt19937& r) { return std::ldexp(Uniform(r, -1, 1), -60); }},
};

// The last digit of TF32: each number may be wrong by as much.
constexpr double kLastOfTf32 = 0x1p-136;

// The largest error of the sums, in parts of the sum of |a| |b|; without what `each` for each
// number explains. B is of another kind where it is given.
double WorstOf(const GpuProduct& p, const Kind& kind, const char* arch, double each = 0,
               const Kind* of_b = nullptr) {
  Graph g;
  const UOp* const sink = KernelOf(g, p);
  std::mt19937 random(7);
  std::vector<float> a(static_cast<size_t>(p.m * p.k)), b(static_cast<size_t>(p.k * p.n));
  for (float& number : a) number = kind.make(random);
  for (float& number : b) number = (of_b == nullptr ? kind : *of_b).make(random);
  Buffers buffers = {std::string(static_cast<size_t>(p.m * p.n) * 4, '\0'),
                     std::string(reinterpret_cast<const char*>(a.data()), a.size() * 4),
                     std::string(reinterpret_cast<const char*>(b.data()), b.size() * 4)};
  const auto compiled = CompileKernel(sink, {.target = CudaTarget(arch, kMultiprocessors)});
  OB_CHECK_OK(compiled.status());
  EXPECT_TRUE(UsesMatrixUnits(compiled->object));
  OB_CHECK_OK(RunOnPtxMachine(*compiled, buffers));
  double worst = 0;
  for (int64_t m = 0; m < p.m; ++m)
    for (int64_t n = 0; n < p.n; ++n) {
      double sum = 0, size = 0, sizes = 0;
      for (int64_t k = 0; k < p.k; ++k) {
        const double product = static_cast<double>(a[static_cast<size_t>(m * p.k + k)]) *
                               static_cast<double>(b[static_cast<size_t>(k * p.n + n)]);
        sum += product;
        size += std::abs(product);
        sizes += std::abs(static_cast<double>(a[static_cast<size_t>(m * p.k + k)])) +
                 std::abs(static_cast<double>(b[static_cast<size_t>(k * p.n + n)]));
      }
      const double got = LoadFloat(DType::kF32, buffers[0].data() + 4 * (m * p.n + n));
      worst = std::max(worst, (std::abs(got - sum) - each * sizes) / size);
    }
  return worst;
}

// The machine cuts digits off as the coarsest unit does.
TEST(MmaF32, ThreeProductsAreWithinTheBoundOfF32) {
  constexpr double kUnit = 0x1p-24;
  for (const Kind& kind : kKinds)
    for (const int64_t k : {48, 64, 250, 2000}) {
      const GpuProduct p{.m = 32, .n = 24, .k = k, .dtype = DType::kF32};
      const double worst = WorstOf(p, kind, "sm_80");
      EXPECT_LE(worst, static_cast<double>(k) * kUnit) << kind.name << " " << k;
      // Far below it for most numbers: 40 units of splitting, and one for each eight steps.
      EXPECT_LE(worst, (40 + static_cast<double>(k) / 8) * kUnit) << kind.name << " " << k;
    }
}

// Low parts of small numbers have digits below TF32's last.
TEST(MmaF32, SmallNumbers_LoseNoMoreThanTheLastDigitOfTf32) {
  const Kind ones = {"ones", [](std::mt19937&) { return 1.0f; }};
  const Kind large = {"large", [](std::mt19937& r) { return std::ldexp(Uniform(r, 1, 2), 60); }};
  const std::pair<Kind, const Kind*> cases[] = {
      {{"2^-120",
        [](std::mt19937&) { return std::ldexp(1 + 0x1p-16f - 0x1p-23f, -120); }},
       &ones},
      {{"subnormal", [](std::mt19937& r) { return std::ldexp(Uniform(r, 0, 1), -127); }}, &large},
      {{"below TF32", [](std::mt19937&) { return 0x1p-140f; }}, &large},
  };
  for (const auto& [kind, of_b] : cases) {
    const GpuProduct p{.m = 32, .n = 24, .k = 128, .dtype = DType::kF32};
    const double bound = (40 + static_cast<double>(p.k) / 8) * 0x1p-24;
    EXPECT_LE(WorstOf(p, kind, "sm_80", kLastOfTf32, of_b), bound) << kind.name;
    EXPECT_GT(WorstOf(p, kind, "sm_80", 0, of_b), bound)
        << kind.name << ": these numbers show no difference";
  }
}

TEST(MmaF32, OneProductIsWithinItsBound_AndNoBetter) {
  for (const Kind& kind : kKinds)
    for (const int64_t k : {16, 250}) {
      const GpuProduct p{.m = 32, .n = 24, .k = k, .dtype = DType::kF32, .tf32 = true};
      const double worst = WorstOf(p, kind, "sm_80");
      EXPECT_LE(worst, 2 * static_cast<double>(k) * 0x1p-24 + 1e-3) << kind.name << " " << k;
      EXPECT_GT(worst, 300 * 0x1p-24) << kind.name << ": these numbers show no difference";
    }
}

// What is not finite, or becomes so when it is rounded, is as in f32.
TEST(MmaF32, InfinitiesAndNaNs) {
  const float inf = std::numeric_limits<float>::infinity(),
              most = std::numeric_limits<float>::max();
  const float special[] = {inf,
                           -inf,
                           std::bit_cast<float>(0x7fffffffu),
                           std::bit_cast<float>(0x7fc00000u),
                           std::bit_cast<float>(0xffc00001u),
                           std::bit_cast<float>(0x7f800001u),
                           most,
                           -most};
  for (const bool tf32 : {false, true}) {
    constexpr int64_t kSide = 40, kSteps = 56;
    const GpuProduct p{.m = kSide, .n = kSide, .k = kSteps, .dtype = DType::kF32, .tf32 = tf32};
    Graph g;
    const UOp* const sink = KernelOf(g, p);
    // Row 3 i + 1 has the i-th number at step i; column 5 has an infinity, and steps 2 zeros.
    Buffers start = RandomBuffers(sink, 1);
    const auto put = [&](size_t slot, int64_t at, float value) {
      std::memcpy(start[slot].data() + 4 * at, &value, 4);
    };
    for (int64_t i = 0; i < 8; ++i) {
      // A program that allows TF32 may see an infinity in a NaN without leading digits.
      if (!tf32 || std::bit_cast<uint32_t>(special[i]) != 0x7f800001u)
        put(1, (3 * i + 1) * kSteps + i, special[i]);
    }
    put(2, 17 * kSide + 5, inf);
    for (int64_t n = 0; n < kSide; n += 2) put(2, 2 * kSide + n, 0);
    Buffers want = start;
    ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
    const auto compiled = CompileKernel(sink, {.target = CudaTarget("sm_80", kMultiprocessors)});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    ASSERT_TRUE(UsesMatrixUnits(compiled->object));
    Buffers got = start;
    ASSERT_EQ(RunOnPtxMachine(*compiled, got), absl::OkStatus());
    int special_sums = 0;
    for (int64_t i = 0; i < kSide * kSide; ++i) {
      const double x = LoadFloat(DType::kF32, got[0].data() + 4 * i),
                   y = LoadFloat(DType::kF32, want[0].data() + 4 * i);
      special_sums += !std::isfinite(y);
      if (std::isnan(y)) {
        EXPECT_TRUE(std::isnan(x)) << i << " tf32 " << tf32;
      } else if (std::abs(y) > 1e30) {
        EXPECT_TRUE(x == y || std::abs(x - y) <= (tf32 ? 1e-3 : 1e-5) * std::abs(y))
            << i << " got " << x << " want " << y << " tf32 " << tf32;
      } else {
        EXPECT_EQ(x, y) << i;
      }
    }
    EXPECT_GT(special_sums, 200);
  }
}

// ---- planted mistakes

enum class MmaMistake { kNone, kNoWait, kNoBarrier, kHighForLow, kLowForgotten };

program::Program WithMistake(program::Program program, MmaMistake mistake) {
  using program::Code;
  std::vector<program::Instruction>& code = program.code;
  const program::Instruction nothing{.code = Code::kWait, .imm = {1000, 0, 0}};
  const auto sum_of = [&](const program::Instruction& i) -> program::Instruction& {
    return code[static_cast<size_t>(i.src[2])];
  };
  for (program::Instruction& i : code) {
    if (i.code == Code::kWait && mistake == MmaMistake::kNoWait) i = nothing;
    if (i.code == Code::kBarrier && mistake == MmaMistake::kNoBarrier) i = nothing;
    // The last of three products, of both high parts: the first one has row's low part.
    if (i.code != Code::kMma || sum_of(i).code != Code::kMma) continue;
    program::Instruction& first = sum_of(sum_of(i));
    if (first.code != Code::kMma) continue;
    if (mistake == MmaMistake::kHighForLow) first.src[0] = i.src[0];
    if (mistake == MmaMistake::kLowForgotten) first.src[0] = first.src[2];  // zeros
  }
  return program;
}

// Whether the interpreter reports it, or sums are beyond the bound.
bool IsFound(const program::Program& program, const Buffers& start, const GpuProduct& p) {
  for (const uint32_t seed : {1u, 2u, 3u}) {
    Buffers got = start;
    if (!program::Interpret(program, got, {}, {.seed = seed}).ok()) return true;
    for (int64_t m = 0; m < p.m; ++m)
      for (int64_t n = 0; n < p.n; ++n) {
        double sum = 0, size = 0;
        for (int64_t k = 0; k < p.k; ++k) {
          const double product = LoadFloat(DType::kF32, start[1].data() + 4 * (m * p.k + k)) *
                                 LoadFloat(DType::kF32, start[2].data() + 4 * (k * p.n + n));
          sum += product;
          size += std::abs(product);
        }
        const double y = LoadFloat(DType::kF32, got[0].data() + 4 * (m * p.n + n));
        if (std::abs(y - sum) > static_cast<double>(p.k) * 0x1p-24 * size) return true;
      }
  }
  return false;
}

TEST(MmaF32, PlantedMistakesAreFound) {
  const GpuProduct p{.m = 32, .n = 32, .k = 64, .dtype = DType::kF32};
  Graph g;
  const UOp* const sink = KernelOf(g, p);
  Graph guards;
  const codegen::LoopNest kernel = *codegen::AnalyzeKernel(*proof::GuardUnproved(guards, sink));
  const MmaTile tile{32, 32, 16, 2, 2, 3};
  const std::vector<Opt> opts = {{OptKind::kMma, 2, codegen::MmaAmount(tile)}};
  const auto plan = codegen::PlanMma(kernel, CudaTarget("sm_80", kMultiprocessors), &opts);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto program = program::ExpandMma(kernel, **plan);
  ASSERT_TRUE(program.ok()) << program.status();
  Buffers start = RandomBuffers(sink, 1);
  std::mt19937 random(11);
  for (size_t slot = 1; slot < 3; ++slot)
    for (size_t i = 0; i < start[slot].size(); i += 4) {
      const float number = Uniform(random, -1, 1);
      std::memcpy(&start[slot][i], &number, 4);
    }
  EXPECT_FALSE(IsFound(*program, start, p));
  for (const MmaMistake mistake : {MmaMistake::kNoWait, MmaMistake::kNoBarrier,
                                   MmaMistake::kHighForLow, MmaMistake::kLowForgotten})
    EXPECT_TRUE(IsFound(WithMistake(*program, mistake), start, p)) << static_cast<int>(mistake);
}

// ---- 8-bit floats

constexpr DType kSmall[] = {DType::kF8E4M3, DType::kF8E5M2};

TEST(MmaSmall, LayoutsShapesAndTiles) {
  const MmaTile tiles[] = {{64, 64, 64, 2, 2, 3}, {32, 64, 32, 1, 2, 4}, {16, 16, 128, 1, 1, 2}};
  const int64_t sizes[][3] = {{64, 128, 160}, {33, 70, 53}, {17, 40, 256}};
  int number = 0;
  for (const DType dtype : kSmall)
    for (const auto& [m, n, k] : sizes)
      for (const MmaTile& tile : tiles)
        for (const bool a_turned : {false, true}) {
          ++number;
          CheckGpuProduct({.batch = 1 + number % 2,
                           .m = m,
                           .n = n,
                           .k = k,
                           .a_turned = a_turned,
                           .b_turned = number % 3 > 0,
                           .dtype = dtype,
                           .epilogue = static_cast<Epilogue>(number % 4),
                           .cast_a = number % 5 == 0},
                          &tile, number % 2 == 0 ? "sm_89" : "sm_90a");
          if (HasFatalFailure()) return;
        }
}

// As a gradient's are, of e5m2, by weights of e4m3. Columns may be what the term names first.
TEST(MmaSmall, ProductsOfTwoTypes) {
  const MmaTile tile{64, 64, 64, 2, 2, 3};
  int number = 0;
  for (const DType dtype : kSmall)
    for (const bool a_turned : {false, true})
      for (const bool b_turned : {false, true})
        for (const bool y_turned : {false, true}) {
          ++number;
          CheckGpuProduct({.m = 33,
                           .n = 70,
                           .k = 160,
                           .a_turned = a_turned,
                           .b_turned = b_turned,
                           .dtype = dtype,
                           .cast_a = number % 5 == 0,
                           .y_turned = y_turned,
                           .of_b = dtype == kSmall[0] ? kSmall[1] : kSmall[0]},
                          number % 3 == 0 ? nullptr : &tile, number % 2 == 0 ? "sm_89" : "sm_90");
          if (HasFatalFailure()) return;
        }
}

// sm_80 has no products of 8-bit floats: those of one type are left to threads, those of two are of
// f32, as they were before they had a form anywhere.
TEST(MmaSmall, ProductsOfTwoTypesAreOfF32_WhereTheUnitHasNone) {
  Graph g;
  const UOp* const sink = KernelOf(g, {.m = 512, .n = 512, .k = 512, .b_turned = true,
                                       .dtype = DType::kF8E4M3, .of_b = DType::kF8E5M2});
  const auto compiled = CompileKernel(sink, {.target = CudaTarget("sm_80", kMultiprocessors)});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_TRUE(absl::StrContains(compiled->object, "tf32.tf32.f32"));
}

// In one sum rows of both types: both are widened.
TEST(MmaSmall, SumsOfProductsInBothOrdersAreOfF32) {
  constexpr int64_t kSide = 64;
  Graph g;
  const UOp *m = Range(g, 0, kSide), *n = Range(g, 1, kSide), *k = ReduceRange(g, 2, kSide);
  const auto load = [&](int64_t slot, DType dtype, const UOp* row) {
    return Cast(g, LoadAt(g, slot, dtype, kSide * kSide, RowMajor(g, {row, k}, {kSide, kSide})),
                DType::kF32);
  };
  const auto product = [&](int64_t slot, DType a, DType b) {
    return Mul(g, load(slot, a, m), load(slot + 1, b, n));
  };
  const UOp* const both =
      Add(g, product(1, kSmall[0], kSmall[1]), product(3, kSmall[1], kSmall[0]));
  const UOp* const sink =
      Sink(g, {StoreAt(g, 0, kSide * kSide, RowMajor(g, {m, n}, {kSide, kSide}),
                       Fold(g, Op::kAdd, both, {k}))});
  const auto found = codegen::FindMmaProduct(*codegen::AnalyzeKernel(sink));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->dtype, DType::kF32);
  EXPECT_EQ(found->columns_dtype, DType::kF32);
  const MmaTile tile{32, 32, 16, 2, 2, 3};
  CheckKernel(sink, &tile, 2, 1e-5, "sm_89");
}

// The unit has no form for these: they are widened to f32.
TEST(MmaSmall, ProductsOfAnyOtherTwoTypesAreOfF32) {
  for (const auto& [a, b] : {std::pair{DType::kBF16, DType::kF16},
                             {DType::kF8E4M3, DType::kBF16}, {DType::kF16, DType::kF8E5M2}}) {
    Graph g;
    const UOp* const sink = KernelOf(g, {.m = 64, .n = 64, .k = 64, .dtype = a, .of_b = b});
    const auto product = codegen::FindMmaProduct(*codegen::AnalyzeKernel(sink));
    ASSERT_TRUE(product.ok()) << product.status();
    EXPECT_EQ(product->dtype, DType::kF32);
    EXPECT_EQ(product->columns_dtype, DType::kF32);
  }
}

// The machine adds with as few digits as sm_90, over the steps of one instruction.
TEST(MmaSmall, SumsAreWithinTheirBound) {
  for (const DType dtype : kSmall)
    for (const int64_t k : {32, 100, 3000}) {
      const GpuProduct p{.m = 32, .n = 24, .k = k, .b_turned = true, .dtype = dtype};
      Graph g;
      const UOp* const sink = KernelOf(g, p);
      std::mt19937 random(3);
      Buffers buffers = {std::string(static_cast<size_t>(p.m * p.n) * 4, '\0'),
                         std::string(static_cast<size_t>(p.m * k), '\0'),
                         std::string(static_cast<size_t>(p.n * k), '\0')};
      for (size_t slot = 1; slot < 3; ++slot)
        for (char& byte : buffers[slot])
          StoreFloat(
              dtype,
              RoundTo(dtype, std::ldexp(Uniform(random, -1, 1), static_cast<int>(random() % 8))),
              &byte);
      const auto compiled = CompileKernel(sink, {.target = CudaTarget("sm_89", kMultiprocessors)});
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      ASSERT_TRUE(UsesMatrixUnits(compiled->object));
      ASSERT_EQ(RunOnPtxMachine(*compiled, buffers), absl::OkStatus());
      double worst = 0;
      for (int64_t m = 0; m < p.m; ++m)
        for (int64_t n = 0; n < p.n; ++n) {
          double sum = 0, size = 0;
          for (int64_t i = 0; i < k; ++i) {
            const double product = LoadFloat(dtype, &buffers[1][static_cast<size_t>(m * k + i)]) *
                                   LoadFloat(dtype, &buffers[2][static_cast<size_t>(n * k + i)]);
            sum += product;
            size += std::abs(product);
          }
          const double got = LoadFloat(DType::kF32, buffers[0].data() + 4 * (m * p.n + n));
          worst = std::max(worst, std::abs(got - sum) / size);
        }
      EXPECT_LE(worst, 0x1p-8 + static_cast<double>(k) * 0x1p-24)
          << std::string(Name(dtype)) << " " << k;
      EXPECT_GT(worst, 0) << "these numbers show no difference";
    }
}

TEST(MmaSmall, AreAssembled_AndRefusedWhereThereAreNone) {
  Graph g;
  const UOp* const sink =
      KernelOf(g, {.m = 512, .n = 512, .k = 512, .b_turned = true, .dtype = DType::kF8E4M3});
  const UOp* const of_two_types = KernelOf(g, {.m = 512, .n = 512, .k = 512, .b_turned = true,
                                               .dtype = DType::kF8E4M3, .of_b = DType::kF8E5M2});
  const std::vector<Opt> opts = {{OptKind::kMma, 2, codegen::MmaAmount({64, 64, 64, 2, 2, 3})}};
  EXPECT_TRUE(absl::IsInvalidArgument(
      codegen::PlanMma(*codegen::AnalyzeKernel(sink), CudaTarget("sm_80", kMultiprocessors), &opts)
          .status()));
  const auto old = CompileKernel(sink, {.target = CudaTarget("sm_80", kMultiprocessors)});
  ASSERT_TRUE(old.ok()) << old.status();
  EXPECT_FALSE(UsesMatrixUnits(old->object));
  const std::string ptxas = FindPtxas();
  for (const char* const arch : {"sm_89", "sm_90", "sm_90a"}) {
    const auto compiled = CompileKernel(sink, {.target = CudaTarget(arch, kMultiprocessors)});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    EXPECT_TRUE(UsesMatrixUnits(compiled->object));
    if (ptxas.empty()) continue;
    const auto stack_bytes = StackBytesOf(ptxas, compiled->object, arch);
    ASSERT_TRUE(stack_bytes.ok()) << stack_bytes.status();
    EXPECT_EQ(*stack_bytes, 0) << arch;
    // By other weights, in the same tile: only a type's name differs.
    const auto two_types =
        CompileKernel(of_two_types, {.target = CudaTarget(arch, kMultiprocessors)});
    ASSERT_TRUE(two_types.ok()) << two_types.status();
    EXPECT_TRUE(absl::StrContains(two_types->object, ".f32.e4m3.e5m2"));
    const auto stack_of_two = StackBytesOf(ptxas, two_types->object, arch);
    ASSERT_TRUE(stack_of_two.ok()) << stack_of_two.status();
    EXPECT_EQ(*stack_of_two, 0) << arch;
  }
  if (ptxas.empty()) GTEST_SKIP() << "no ptxas in PATH or OUTBOARD_PTXAS: not assembled";
}

TEST(MmaSmall, OfADriverThatDoesNotKnowThem_AreComputedWithout) {
  Graph g;
  const UOp* const sink =
      KernelOf(g, {.m = 512, .n = 512, .k = 512, .b_turned = true, .dtype = DType::kF8E4M3});
  Target target = CudaTarget("sm_89", kMultiprocessors);
  target.features = "-ptx84";
  const auto compiled = CompileKernel(sink, {.target = target});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_FALSE(UsesMatrixUnits(compiled->object));
  EXPECT_TRUE(compiled->object.starts_with(".version 7.8"));
  ASSERT_EQ(compiled->given_up.size(), 1u);
  EXPECT_TRUE(absl::StrContains(compiled->given_up[0], "PTX 8.4")) << compiled->given_up[0];
  // By warpgroups they are older.
  target = CudaTarget("sm_90a", kMultiprocessors);
  target.features = "-ptx84";
  const auto by_groups = CompileKernel(
      KernelOf(g, {.m = 4096, .n = 4096, .k = 4096, .b_turned = true, .dtype = DType::kF8E4M3}),
      {.target = target});
  ASSERT_TRUE(by_groups.ok()) << by_groups.status();
  EXPECT_TRUE(absl::StrContains(by_groups->object, "wgmma.mma_async"));
  EXPECT_TRUE(by_groups->given_up.empty());
}

// ---- choices

TEST(MmaF32, WhereThreeProductsPay_TheyAreTheDefault) {
  const auto uses = [](const char* arch, int64_t k, bool tf32) {
    Graph g;
    const auto compiled =
        CompileKernel(KernelOf(g, {.m = 256, .n = 256, .k = k, .dtype = DType::kF32, .tf32 = tf32}),
                      {.target = CudaTarget(arch, kMultiprocessors)});
    OB_CHECK_OK(compiled.status());
    return UsesMatrixUnits(compiled->object);
  };
  for (const char* const arch : {"sm_80", "sm_90", "sm_90a"}) {
    EXPECT_TRUE(uses(arch, 256, false)) << arch;
    EXPECT_FALSE(uses(arch, 40, false)) << arch;  // too few steps for the bound
    EXPECT_TRUE(uses(arch, 40, true)) << arch;
  }
  // Its threads are as fast as a third of its matrix units.
  EXPECT_FALSE(uses("sm_89", 256, false));
  EXPECT_TRUE(uses("sm_89", 256, true));
}

TEST(MmaF32, FewSteps_AreRefusedByName) {
  Graph g;
  const codegen::LoopNest kernel =
      *codegen::AnalyzeKernel(KernelOf(g, {.m = 64, .n = 64, .k = 40, .dtype = DType::kF32}));
  const std::vector<Opt> opts = {{OptKind::kMma, 2, codegen::MmaAmount(kTile)}};
  EXPECT_EQ(
      codegen::PlanMma(kernel, CudaTarget("sm_80", kMultiprocessors), &opts).status().message(),
      "MMA: a sum of so few products of f32 would not be within its bound");
}

TEST(MmaF32, IsAssembledWithoutSpills) {
  const std::string ptxas = FindPtxas();
  if (ptxas.empty()) GTEST_SKIP() << "no ptxas in PATH or OUTBOARD_PTXAS";
  for (const char* const arch : {"sm_80", "sm_90"})
    for (const bool tf32 : {false, true})
      for (const int64_t side : {4096, 500, 100})
        for (const bool turned : {false, true}) {
          Graph g;
          const GpuProduct p{.m = side,
                             .n = side,
                             .k = 512,
                             .a_turned = turned,
                             .b_turned = turned,
                             .dtype = DType::kF32,
                             .epilogue = Epilogue::kBiasAndRelu,
                             .tf32 = tf32};
          const auto compiled =
              CompileKernel(KernelOf(g, p), {.target = CudaTarget(arch, kMultiprocessors)});
          ASSERT_TRUE(compiled.ok()) << compiled.status();
          EXPECT_TRUE(UsesMatrixUnits(compiled->object));
          const auto stack_bytes = StackBytesOf(ptxas, compiled->object, arch);
          ASSERT_TRUE(stack_bytes.ok()) << stack_bytes.status();
          EXPECT_EQ(*stack_bytes, 0) << arch << " side " << side << " turned " << turned << " tf32 "
                                 << tf32;
        }
}

}  // namespace
}  // namespace outboard::test
