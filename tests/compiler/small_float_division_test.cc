// Division of floats smaller than f32 as the printer of PTX does it, by the unit and without a
// branch (compiler/render/ptx/divide_floats.cc, DivideSmall): its text on the PTX machine against
// the interpreter, with reciprocals as wrong as PTX allows, and with mistakes in it, each of which
// is found. All digits are tried in float_division_proof_test.cc, with worse reciprocals.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/program/interpret.h"
#include "tests/compiler/division_rows.h"
#include "tests/compiler/ptx_check.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {
namespace {

using program::Program;

// Quotients of bf16 exactly in the middle of two subnormal numbers, and ones next to it.
void AddSubnormalQuotients(Rows& rows) {
  for (int b = 1; b < 256; b += 2)
    for (const int exponent : {-30, -10, 0}) {
      std::vector<float> numbers;
      for (int m = 1; m < 256; m += 2) {
        if (m * b < 256)
          numbers.push_back(std::ldexp(static_cast<float>(m * b), exponent - 134 + 20));
        numbers.push_back(std::ldexp(static_cast<float>(m), exponent - 114));
        numbers.push_back(-numbers.back());
        if (m >= b + 16) break;
      }
      rows.Add(std::ldexp(static_cast<float>(b), exponent + 20), numbers);
      rows.Add(-std::ldexp(static_cast<float>(b), exponent + 20), numbers);
    }
}

Rows AllKindsOfSmallFloats() {
  Rows rows = AllKinds();
  AddSubnormalQuotients(rows);
  while (rows.divisors.size() % kThreads != 0) rows.Add(1, {1});
  return rows;
}

TEST(SmallFloatDivision, AllKindsOfNumbers_AreRoundedCorrectlyWithoutABranch) {
  const Rows rows = AllKindsOfSmallFloats();
  const auto count = static_cast<int64_t>(rows.divisors.size());
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF8E5M2, DType::kF8E4M3})
    for (const char* const arch : {"sm_80", "sm_90a"})
      for (const int lanes : {1, 2}) {
        SCOPED_TRACE(absl::StrCat(std::string(Name(dtype)), " ", arch, ", lanes ", lanes));
        const Program program = DivideRows(dtype, count, lanes, lanes == 2);
        Buffers want = BuffersOf(rows, dtype, lanes, lanes == 2);
        ASSERT_TRUE(program::Interpret(program, want, {}).ok());
        const auto kernel = Rendered(program, arch);
        ASSERT_TRUE(kernel.ok()) << kernel.status();
        ExpectClean(kernel->object);
        for (const char* const part : {"div.rn", " bra ", "f64"})
          EXPECT_EQ(CountOf(kernel->object, part), 0) << part;
        for (uint64_t inexact = 0; inexact < 6; ++inexact) {
          Buffers got = BuffersOf(rows, dtype, lanes, lanes == 2);
          const absl::Status ran = RunOnPtxMachine(*kernel, got, {}, 1, nullptr, nullptr, inexact);
          ASSERT_TRUE(ran.ok()) << ran;
          EXPECT_EQ(Differences(got[0], want[0], dtype), 0) << inexact;
        }
      }
}

TEST(SmallFloatDivision, MistakesInItsText_AreFound) {
  const Rows rows = AllKindsOfSmallFloats();
  struct Wrong {
    DType dtype;
    Mistake mistake;
  };
  const Wrong all[] = {
      {DType::kBF16,
       {"small divisors are made smaller", "selp.b32", 0, 1, "0f43800000", "0f3e800000"}},
      {DType::kBF16, {"large divisors stay", "selp.b32", 0, 1, "0f3e800000", "0f3f800000"}},
      {DType::kBF16,
       {"divisors near 1 count as small", "setp.lt.f32", 0, 1, "0f1f800000", "0f3f800000"}},
      {DType::kBF16,
       {"no divisors count as small", "setp.lt.f32", 0, 1, "0f1f800000", "0f00000000"}},
      {DType::kBF16, {"steps without a sign", "and.b32", 0, 2, "-2147483648", "0"}},
      {DType::kBF16, {"nothing is cut off", "and.b32", 1, 2, "-16", "-1"}},
      {DType::kBF16, {"too much is cut off", "and.b32", 1, 2, "-16", "-4096"}},
      {DType::kBF16, {"the dividend is not scaled", "mul.rn.f32", 1, 2, "mul.rn.f32", "max.f32"}},
      {DType::kBF16,
       {"a product that flushes", "fma.rn.f32", 0, 1, "fma.rn.f32", "fma.rn.ftz.f32"}},
      {DType::kF16, {"no last step", "setp.ne.f32", 0, 1, "0f00000000", "0f7f800000"}},
      {DType::kF16,
       {"a last step of what is no number", "setp.ne.f32", 0, 1, "setp.ne.", "setp.neu."}},
      {DType::kF16, {"a last step of what is exact", "setp.ne.f32", 0, 1, "setp.ne.", "setp.num."}},
      {DType::kF16, {"the rest has another sign", "neg.f32", 0, 1, "neg.", "abs."}},
  };
  for (const auto& [dtype, mistake] : all) {
    const Program program = DivideRows(dtype, static_cast<int64_t>(rows.divisors.size()), 1);
    Buffers want = BuffersOf(rows, dtype);
    ASSERT_TRUE(program::Interpret(program, want, {}).ok());
    const auto kernel = Rendered(program);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    CompiledKernel wrong = *kernel;
    wrong.object = WithMistake(kernel->object, mistake);
    EXPECT_NE(wrong.object, kernel->object) << mistake.name << kernel->object;
    int64_t differences = 0;
    for (uint64_t inexact = 0; inexact < 6 && differences == 0; ++inexact) {
      Buffers got = BuffersOf(rows, dtype);
      const absl::Status ran = RunOnPtxMachine(wrong, got, {}, 1, nullptr, nullptr, inexact);
      differences = ran.ok() ? Differences(got[0], want[0], dtype) : 1;
    }
    std::printf("%s: %lld numbers differ\n", mistake.name, static_cast<long long>(differences));
    EXPECT_GT(differences, 0) << mistake.name;
  }
}

}  // namespace
}  // namespace outboard::test
