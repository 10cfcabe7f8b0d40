// Exponentials of bf16 and f16 by the unit of a GPU (docs/decisions/216-epilogues.md), on the PTX
// machine with powers and reciprocals as wrong as PTX allows: of every number, alone, and in GELU
// and its gradient against the reference interpreter.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <numbers>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "client/tensor/tensor.h"
#include "compiler/compile.h"
#include "compiler/ir/dtype.h"
#include "compiler/reference/interpret.h"
#include "tests/compiler/attention_cases.h"
#include "tests/compiler/gpu_schedule.h"
#include "tests/compiler/kernel_build.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {
namespace {

constexpr int64_t kNumbers = 1 << 16;  // of 16 bits
constexpr double kBound = 0x1p-17;     // docs/semantics.md

std::string EveryNumber() {
  std::string bytes(2 * kNumbers, '\0');
  for (int64_t i = 0; i < kNumbers; ++i) StoreInt(DType::kU16, i, bytes.data() + 2 * i);
  return bytes;
}

double At(DType dtype, const std::string& bytes, int64_t i) {
  return LoadFloat(dtype, bytes.data() + 2 * i);
}

bool IsSame(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

CompiledKernel Compiled(Op op, DType dtype) {
  Graph g;
  const UOp* const i = Range(g, 0, kNumbers);
  const UOp* const value = Alu(g, op, LoadAt(g, 0, dtype, kNumbers, i));
  return ValueOrDie(CompileKernel(Sink(g, {StoreAt(g, 1, kNumbers, i, value)}),
                                  {.target = CudaTarget("sm_90a", /*multiprocessors=*/132)}));
}

struct Differences {
  int64_t from_nearest = 0, beyond = 0;  // of the exact value; of the bound
};

Differences DifferencesOf(const CompiledKernel& kernel, double (*exact)(double), DType dtype,
                          uint64_t inexact) {
  Buffers buffers = {EveryNumber(), EveryNumber()};
  const absl::Status ran = RunOnPtxMachine(kernel, buffers, {}, 1, nullptr, nullptr, inexact);
  EXPECT_TRUE(ran.ok()) << ran << kernel.object;
  Differences out;
  for (int64_t i = 0; i < kNumbers; ++i) {
    const double value = exact(At(dtype, buffers[0], i)), got = At(dtype, buffers[1], i);
    if (IsSame(got, RoundTo(dtype, value))) continue;
    ++out.from_nearest;
    out.beyond += !IsSame(got, RoundTo(dtype, value * (1 + kBound))) &&
                  !IsSame(got, RoundTo(dtype, value * (1 - kBound)));
  }
  return out;
}

TEST(UnitExponential, OfEveryNumber_IsWithinItsBound) {
  struct Function {
    Op op;
    double (*exact)(double);
  };
  for (const Function& f : {Function{Op::kExp, std::exp}, Function{Op::kExp2, std::exp2},
                            Function{Op::kTanh, std::tanh}})
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      SCOPED_TRACE(absl::StrCat(std::string(Name(f.op)), " ", std::string(Name(dtype))));
      const CompiledKernel kernel = Compiled(f.op, dtype);
      EXPECT_TRUE(absl::StrContains(kernel.object, "ex2.approx")) << kernel.object;
      int64_t most = 0;
      for (const uint64_t inexact : {0, 1, 2, 3, 4, 5}) {
        const Differences found = DifferencesOf(kernel, f.exact, dtype, inexact);
        EXPECT_EQ(found.beyond, 0) << inexact;
        most = std::max(most, found.from_nearest);
      }
      std::printf("%s %s: %lld numbers are not the nearest\n", std::string(Name(f.op)).c_str(),
                  std::string(Name(dtype)).c_str(), static_cast<long long>(most));
      EXPECT_LE(most, kNumbers / 256);
    }
}

// The bound is needed, and is one: what is less exact is found.
TEST(UnitExponential, MistakesInItsText_AreFound) {
  CompiledKernel kernel = Compiled(Op::kExp, DType::kBF16);
  EXPECT_GT(DifferencesOf(kernel, std::exp, DType::kBF16, 1).from_nearest, 0);
  const std::string text = kernel.object;
  struct Mistake {
    const char *name, *part, *instead;
  };
  for (const Mistake& mistake :
       {Mistake{"log2 e of 16 digits", "0f3fb8aa3b", "0f3fb8aa00"},
        Mistake{"subnormal powers are 0", "ex2.approx.f32", "ex2.approx.ftz.f32"}}) {
    kernel.object = absl::StrReplaceAll(text, {{mistake.part, mistake.instead}});
    EXPECT_NE(kernel.object, text) << mistake.name << text;
    const Differences found = DifferencesOf(kernel, std::exp, DType::kBF16, 1);
    std::printf("%s: %lld numbers beyond the bound\n", mistake.name,
                static_cast<long long>(found.beyond));
    EXPECT_GT(found.beyond, 0) << mistake.name;
  }
}

// What GELU takes an exponential of, in bf16, operation by operation (client/ops/elementwise).
double ExponentOfGelu(double x) {
  const auto r = [](double value) { return RoundTo(DType::kBF16, value); };
  const double cubic = r(r(r(x * x) * x) * r(0.044715));
  const double y = r(r(x + cubic) * r(2 * std::sqrt(2 / std::numbers::pi)));
  return y < 0 ? y : -y;
}

bool MayBeRoundedOtherwise(double x) {
  const double power = std::exp(ExponentOfGelu(x));
  return !IsSame(RoundTo(DType::kBF16, power * (1 - kBound)),
                 RoundTo(DType::kBF16, power * (1 + kBound)));
}

// Of all bf16 numbers GELU and its gradient have the interpreter's bits, but where the power of two
// is so near the middle of two numbers that the bound lets it be either.
TEST(UnitExponential, InGeluAndItsGradientOfEveryNumber_ChangesWhatTheBoundSays) {
  constexpr int64_t kSide = 256;
  Graph graph;
  const RecordedResults recorded = RecordResults(graph, [] {
    const Tensor x = Input({kSide, kSide}, DType::kBF16), dy = Input({kSide, kSide}, DType::kBF16);
    const Tensor y = x.gelu();
    return std::vector<Tensor>{y, y.gradient({x}, dy)[0]};
  });
  std::vector<HostTensor> params = SmallInputs(recorded.sink);
  ASSERT_EQ(params.size(), 2u);
  params[0].bytes = EveryNumber();
  for (int64_t i = 0; i < kNumbers; ++i)
    StoreFloat(DType::kBF16, 1 + static_cast<double>(i % 7) / 8, params[1].bytes.data() + 2 * i);
  const auto want = Interpret(recorded.sink, params, recorded.bindings);
  ASSERT_TRUE(want.ok()) << want.status();
  for (const char* const arch : {"sm_80", "sm_90a"}) {
    SCOPED_TRACE(arch);
    const GpuSchedule gpu(recorded.sink, arch);
    const std::vector<std::string> got = gpu.Run(params, {});
    int64_t may_differ = 0, differ = 0;
    for (int64_t i = 0; i < kNumbers; ++i) {
      const double x = At(DType::kBF16, params[0].bytes, i);
      may_differ += MayBeRoundedOtherwise(x);
      for (size_t r = 0; r < got.size(); ++r) {
        const double a = At(DType::kBF16, got[r], i), b = At(DType::kBF16, (*want)[r].bytes, i);
        if (IsSame(a, b)) continue;
        ++differ;
        EXPECT_TRUE(MayBeRoundedOtherwise(x))
            << "result " << r << " of " << x << ": " << a << ", not " << b;
        // One unit of the power; the gradient adds numbers of both signs.
        EXPECT_NEAR(a, b, 0x1p-6 * std::max(std::abs(b), r == 0 ? 0 : 0.25)) << r << " of " << x;
      }
    }
    std::printf("%s: %lld results differ, of %lld numbers that may\n", arch,
                static_cast<long long>(differ), static_cast<long long>(may_differ));
    EXPECT_LE(may_differ, kNumbers / 64);
  }
}

// Of lines of PTX behind the product's loop, for each sum of a thread: with one quotient, which is
// GELU, or with two, its gradient.
TEST(UnitExponential, GeluAndItsGradientBesideProducts_TakeFewInstructions) {
  constexpr int64_t kRows = 8192, kWidth = 768, kWide = 3072;
  constexpr double kGeluMost = 38, kGradientMost = 76;
  Graph graph;
  const RecordedResults recorded = RecordResults(graph, [] {
    const Tensor x = Input({kRows, kWidth}, DType::kBF16),
                 up = Input({kWidth, kWide}, DType::kBF16),
                 down = Input({kWide, kWidth}, DType::kBF16),
                 dy = Input({kRows, kWidth}, DType::kBF16);
    const Tensor y = x.matmul(up).gelu().matmul(down);
    std::vector<Tensor> results = {y};
    for (const Tensor& gradient : y.gradient({x, up, down}, dy)) results.push_back(gradient);
    return results;
  });
  const GpuSchedule gpu(recorded.sink, "sm_90a");
  int64_t gelus = 0, gradients = 0;
  for (const CompiledKernel& kernel : gpu.compiled()) {
    if (!absl::StrContains(kernel.object, "wgmma") ||
        !absl::StrContains(kernel.object, "ex2.approx"))
      continue;
    EXPECT_FALSE(absl::StrContains(kernel.object, "cvt.f64") ||
                 absl::StrContains(kernel.object, "div.rn.f32"));
    int64_t lines = 0, powers = 0, reciprocals = 0;
    for (const absl::string_view line : absl::StrSplit(kernel.object, '\n')) {
      if (absl::StrContains(line, "wgmma.mma_async")) lines = 0;
      lines += absl::StartsWith(line, "\t");
      powers += absl::StrContains(line, "ex2.approx");
      reciprocals += absl::StrContains(line, "rcp.approx.ftz.f32");
    }
    const bool is_gradient = reciprocals == 2 * powers;
    EXPECT_TRUE(is_gradient || reciprocals == powers) << reciprocals << " of " << powers;
    (is_gradient ? gradients : gelus) += 1;
    const double each = static_cast<double>(lines) / static_cast<double>(powers);
    std::printf("%s: %.1f lines for each of %lld sums\n", is_gradient ? "gradient" : "GELU", each,
                static_cast<long long>(powers));
    EXPECT_LE(each, is_gradient ? kGradientMost : kGeluMost);
  }
  EXPECT_EQ(gelus, 1);
  EXPECT_EQ(gradients, 1);
}

}  // namespace
}  // namespace outboard::test
