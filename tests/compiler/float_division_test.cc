// Division of f32 as the printer of PTX does it where several numbers have one divisor
// (compiler/render/ptx/divide_floats.cc): its text on the PTX machine against the interpreter, with
// reciprocals as wrong as PTX allows. And with mistakes in that text, each of which is found. What
// its proof leaves to be tried: float_division_proof_test.cc. Of smaller floats:
// small_float_division_test.cc.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "compiler/program/interpret.h"
#include "compiler/program/program.h"
#include "tests/compiler/division_rows.h"
#include "tests/compiler/ptx_check.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {
namespace {

using program::Code;
using program::Grid;
using program::Program;
using program::ProgramBuilder;
using program::ValueId;

// ---- its text, on the PTX machine

TEST(FloatDivision, AllKindsOfNumbers_AreAsInterpreted) {
  const Rows rows = AllKinds();
  const auto count = static_cast<int64_t>(rows.divisors.size());
  struct Way {
    int lanes;
    bool together;
    size_t branches;
  };
  const DType dtype = DType::kF32;
  for (const Way& way : {Way{1, false, kRow}, Way{1, true, kRow / 2}, Way{4, false, kRow / 2},
                         Way{2, true, kRow / 2}}) {
    SCOPED_TRACE(absl::StrCat("lanes ", way.lanes, way.together ? ", together" : ""));
    const Program program = DivideRows(dtype, count, way.lanes, way.together);
    Buffers want = BuffersOf(rows, dtype, way.lanes, way.together);
    ASSERT_TRUE(program::Interpret(program, want, {}).ok());
    const auto kernel = Rendered(program);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    ExpectClean(kernel->object);
    EXPECT_EQ(CountOf(kernel->object, "div.rn"), 0) << kernel->object;
    EXPECT_EQ(CountOf(kernel->object, "rcp.approx.ftz.f32"), 1) << kernel->object;
    EXPECT_EQ(CountOf(kernel->object, " bra "), way.branches) << kernel->object;
    for (const uint64_t inexact : {0, 1, 2, 3, 4, 5}) {
      if (inexact > 1 && way.lanes > 1) continue;
      Buffers got = BuffersOf(rows, dtype, way.lanes, way.together);
      const absl::Status ran = RunOnPtxMachine(*kernel, got, {}, 1, nullptr, nullptr, inexact);
      ASSERT_TRUE(ran.ok()) << ran;
      EXPECT_EQ(Differences(got[0], want[0], dtype), 0) << inexact;
    }
  }
}

// Numbers as they are in networks, zeros of both signs among them.
Rows OrdinaryRows() {
  Rows rows;
  std::mt19937 random(2);
  for (int64_t row = 0; row < 4 * kThreads; ++row) {
    const auto any = [&] {
      return std::ldexp(static_cast<float>(kDigitsLeast + random() % kDigitsLeast),
                        static_cast<int>(random() % 20) - 33);
    };
    rows.Add(row % 2 == 0 ? any() : -any(),
             {any(), -any(), 0.0f, -0.0f, 1.0f, -1.0f, any(), any()});
  }
  return rows;
}

// How many instructions warps execute with ordinary numbers.
int64_t InstructionsOf(const CompiledKernel& kernel, const Rows& rows, uint64_t inexact) {
  Buffers buffers = BuffersOf(rows, DType::kF32);
  MachineCounts counts;
  const absl::Status ran = RunOnPtxMachine(kernel, buffers, {}, 1, nullptr, &counts, inexact);
  EXPECT_TRUE(ran.ok()) << ran;
  return static_cast<int64_t>(counts.warp_instructions);
}

TEST(FloatDivision, OfOrdinaryNumbers_LeavesTheRarePartOut) {
  const Rows ordinary = OrdinaryRows();
  const auto kernel =
      Rendered(DivideRows(DType::kF32, static_cast<int64_t>(ordinary.divisors.size()), 1));
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  int64_t in_rare_parts = 0;
  bool is_rare = false;
  for (const absl::string_view line : absl::StrSplit(kernel->object, '\n')) {
    if (absl::StartsWith(line, "L")) is_rare = false;
    in_rare_parts += is_rare;
    if (absl::StrContains(line, " bra L")) is_rare = true;
  }
  EXPECT_GE(in_rare_parts, 10 * kRow);
  Rows rare = ordinary;
  for (float& divisor : rare.divisors) divisor *= 0x1p-60f;
  const int64_t warps = static_cast<int64_t>(rare.divisors.size()) / 32;
  for (const uint64_t inexact : {0, 1, 2, 3})
    EXPECT_EQ(InstructionsOf(*kernel, ordinary, inexact) + warps * in_rare_parts,
              InstructionsOf(*kernel, rare, inexact));
}

TEST(FloatDivision, MistakesInItsText_AreFound) {
  const Rows rows = AllKinds(), ordinary = OrdinaryRows();
  const Program program = DivideRows(DType::kF32, static_cast<int64_t>(rows.divisors.size()), 1);
  Buffers want = BuffersOf(rows, DType::kF32);
  ASSERT_TRUE(program::Interpret(program, want, {}).ok());
  const auto kernel = Rendered(program);
  const auto of_ordinary =
      Rendered(DivideRows(DType::kF32, static_cast<int64_t>(ordinary.divisors.size()), 1));
  ASSERT_TRUE(kernel.ok() && of_ordinary.ok()) << kernel.status() << of_ordinary.status();
  const int64_t instructions = InstructionsOf(*of_ordinary, ordinary, 1);
  // Of fma.rn.f32 there are the error and the step of the reciprocal and its residual, then the
  // rest and the last step of each quotient; of fma.rn.f64 error, step, rest and last step of each.
  const Mistake mistakes[] = {
      {"no step of the reciprocal", "fma.rn.f32", 0, 0, "0f3f800000", "0f00000000"},
      {"half a step", "fma.rn.f32", 1, 0, "fma.rn.f32", "fma.rz.f32"},
      {"no check of the residual", "setp.lt.f32", 0, 0, "0f33800000", "0f3f000000"},
      {"the residual may be one unit more", "setp.lt.f32", 0, 0, "0f33800000", "0f33800001"},
      {"the residual must be half as large", "setp.lt.f32", 0, 0, "0f33800000", "0f33000000"},
      {"no check of the reciprocal", "setp.lt.and.f32", 0, 0, "0f4f800000", "0f7f000000"},
      {"reciprocals above 1 fail", "setp.lt.and.f32", 0, 0, "0f4f800000", "0f3f800000"},
      {"divisors that fail are used", "selp.b32", 0, 0, "0f7fc00000", "0f00000000"},
      {"the rest is added without being rounded to nearest", "fma.rn.f32", 4, 2, "fma.rn.f32",
       "fma.rz.f32"},
      {"small quotients count as fast", "setp.ge.or.f32", 0, 1, "0f1d000000", "0f00800000"},
      {"most quotients count as rare", "setp.ge.or.f32", 0, 1, "0f1d000000", "0f3f800000"},
      {"what is no number counts as fast", "setp.ge.or.f32", 0, 1, "setp.ge.", "setp.geu."},
      {"all numbers count as fast", "setp.ge.or.f32", 0, 1, "0f1d000000", "0f80000000"},
      {"others than zeros count as zero", "or.b32", 1, 2, "\tor.b32", "\tand.b32"},
      {"zeros lose their sign", "and.b32", 0, 2, "-2147483648", "0"},
      {"-0 counts as rare", "and.b32", 1, 2, "2147483647", "-1"},
      {"zeros count as rare", "setp.eq.s32", 0, 1, ", 0;", ", 7;"},
      {"no step of the coarse reciprocal", "fma.rn.f64", 0, 4, "0d3ff0000000000000",
       "0d0000000000000000"},
      {"a step of what is no number", "fma.rn.f64", 1, 4, "@", "@!"},
      {"a last step of what is exact", "setp.ne.f64", 0, 1, "setp.ne.", "setp.neu."},
      {"no last step of what is not exact", "setp.ne.f64", 0, 1, "setp.ne.", "setp.eq."},
      {"the second rounding cuts off", "cvt.rn.f32.f64", 0, 1, "cvt.rn.", "cvt.rz."},
      {"the second rounding flushes", "cvt.rn.f32.f64", 0, 1, "cvt.rn.", "cvt.rn.ftz."},
  };
  for (const Mistake& mistake : mistakes) {
    CompiledKernel wrong = *kernel, slow = *of_ordinary;
    wrong.object = WithMistake(kernel->object, mistake);
    slow.object = WithMistake(of_ordinary->object, mistake);
    EXPECT_NE(wrong.object, kernel->object) << mistake.name;
    const int64_t more = InstructionsOf(slow, ordinary, 1) - instructions;
    int64_t differences = 0;
    for (uint64_t inexact = 0; inexact < 6 && differences == 0; ++inexact) {
      Buffers got = BuffersOf(rows, DType::kF32);
      const absl::Status ran = RunOnPtxMachine(wrong, got, {}, 1, nullptr, nullptr, inexact);
      differences = ran.ok() ? Differences(got[0], want[0], DType::kF32) : 1;
    }
    std::printf("%s: %lld numbers differ, %lld instructions more\n", mistake.name,
                static_cast<long long>(differences), static_cast<long long>(more));
    EXPECT_GT(differences + more, 0) << mistake.name;
  }
  // Of those that share a branch, one that is fast is no word for the others.
  const auto grouped =
      Rendered(DivideRows(DType::kF32, static_cast<int64_t>(rows.divisors.size()), 1, true));
  ASSERT_TRUE(grouped.ok()) << grouped.status();
  CompiledKernel wrong = *grouped;
  wrong.object = absl::StrReplaceAll(grouped->object, {{"and.pred", "or.pred"}});
  Buffers got = BuffersOf(rows, DType::kF32, 1, true);
  ASSERT_TRUE(RunOnPtxMachine(wrong, got).ok());
  Buffers right = BuffersOf(rows, DType::kF32, 1, true);
  ASSERT_TRUE(RunOnPtxMachine(*grouped, right).ok());
  EXPECT_GT(Differences(got[0], right[0], DType::kF32), 0);
}

// ---- very many quotients

// Each thread divides a row by its divisor `times` times, and its divisor by each number of the row
// as often: half of the quotients have a divisor of their own.
Program DivideOften(DType dtype, int64_t rows, int64_t times) {
  ProgramBuilder b;
  const ValueId out = b.Buffer(dtype, 0, 2 * times * rows * kRow),
                in = b.Buffer(dtype, 1, rows * kRow), divisors = b.Buffer(dtype, 2, rows);
  const ValueId row = b.Plus(b.Times(b.Special(Grid::kBlock, rows / kThreads), kThreads),
                             b.Special(Grid::kThread, kThreads));
  const ValueId divisor = b.Load(divisors, row);
  for (int64_t k = 0; k < kRow; ++k) {
    for (int64_t time = 0; time < 2 * times; ++time) {
      const ValueId x = b.Load(in, b.Plus(row, b.Int(k * rows)));
      b.Store(out, b.Plus(row, b.Int((2 * times * k + time) * rows)),
              time % 2 == 0 ? b.Alu(Op::kFDiv, dtype, {x, divisor})
                            : b.Alu(Op::kFDiv, dtype, {divisor, x}));
    }
  }
  return b.Take(3);
}

TEST(FloatDivision, OfVeryManyQuotients_HasNoBranchOnSm90a) {
  constexpr int64_t kTimes = 9;  // 144 quotients in all; up to 128 have branches
  const Rows rows = AllKinds();
  const auto count = static_cast<int64_t>(rows.divisors.size());
  const DType dtype = DType::kF32;
  const Program program = DivideOften(dtype, count, kTimes);
  Buffers start = BuffersOf(rows, dtype);
  start[0].resize(2 * kTimes * start[1].size());
  Buffers want = start;
  ASSERT_TRUE(program::Interpret(program, want, {}).ok());
  const auto kernel = Rendered(program, "sm_90a");
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  ExpectClean(kernel->object);
  for (const char* const part : {"div.rn", " bra ", "rcp.approx.ftz.f32"})
    EXPECT_EQ(CountOf(kernel->object, part), 0) << part;
  EXPECT_EQ(CountOf(kernel->object, "cvt.rn.f32.f64"), 2 * kTimes * kRow);
  // One for all of the row.
  EXPECT_EQ(CountOf(kernel->object, "rcp.approx.ftz.f64"), 1 + kTimes * kRow);
  for (const uint64_t inexact : {0, 1, 2, 3, 4, 5}) {
    Buffers got = start;
    const absl::Status ran = RunOnPtxMachine(*kernel, got, {}, 1, nullptr, nullptr, inexact);
    ASSERT_TRUE(ran.ok()) << ran;
    EXPECT_EQ(Differences(got[0], want[0], dtype), 0) << inexact;
  }
  // Where f64 is slow, and where there are fewer, the rare part stays in a branch.
  for (const auto& [arch, times] : {std::pair("sm_89", kTimes), {"sm_90a", kTimes - 1}}) {
    const auto other = Rendered(DivideOften(dtype, count, times), arch);
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_GT(CountOf(other->object, " bra "), 0) << arch;
  }
}

// ---- where it is

// `quotients` of one divisor, or in a loop of that many passes.
TEST(FloatDivision, OfDivisorsOfFewNumbers_IsTheAssemblers) {
  constexpr int64_t kMost = 5;
  for (const DType dtype : {DType::kF32, DType::kF64})
    for (const bool in_loop : {false, true})
      for (int64_t quotients = 1; quotients <= kMost; ++quotients) {
        SCOPED_TRACE(
            absl::StrCat(std::string(Name(dtype)), " ", quotients, in_loop ? " in a loop" : ""));
        ProgramBuilder b;
        const ValueId out = b.Buffer(dtype, 0, kMost * kThreads),
                      in = b.Buffer(dtype, 1, kMost * kThreads),
                      divisors = b.Buffer(dtype, 2, kThreads);
        const ValueId thread = b.Special(Grid::kThread, kThreads);
        const ValueId divisor = b.Load(divisors, thread);
        const auto divide = [&](ValueId row) {
          const ValueId place =
              b.Plus(b.Alu(Op::kMul, DType::kI64, {row, b.Int(kThreads)}), thread);
          b.Store(out, place, b.Alu(Op::kFDiv, dtype, {b.Load(in, place), divisor}));
        };
        if (in_loop) {
          const ValueId pass = b.Loop(quotients);
          divide(pass);
          b.End(pass);
        } else {
          for (int64_t k = 0; k < quotients; ++k) divide(b.Int(k));
        }
        const Program program = b.Take(3);
        const auto kernel = Rendered(program);
        ASSERT_TRUE(kernel.ok()) << kernel.status();
        EXPECT_EQ(absl::StrContains(kernel->object, "div.rn"),
                  dtype == DType::kF64 || quotients < 4)
            << kernel->object;
        std::vector<float> numbers, by;
        for (int64_t i = 0; i < kMost * kThreads; ++i)
          numbers.push_back(static_cast<float>(i * i % 101) - 50);
        for (int64_t i = 0; i < kThreads; ++i) by.push_back(static_cast<float>(i % 23 + 1));
        ExpectRunsAsInterpreted(
            program,
            {std::string(numbers.size() * static_cast<size_t>(ByteWidth(dtype)), '\0'),
             BytesOf(numbers, dtype), BytesOf(by, dtype)},
            {}, kArchs, /*assembled=*/false);
      }
}

// A divisor in private memory that changes between quotients, in a loop that it is loaded in.
TEST(FloatDivision, ADivisorThatChanges_IsInvertedAgain) {
  constexpr int64_t kPasses = 3, kNumbers = 4;
  ProgramBuilder b;
  const ValueId out = b.Buffer(DType::kF32, 0, (kPasses + 1) * kNumbers * kThreads),
                in = b.Buffer(DType::kF32, 1, kNumbers * kThreads);
  const ValueId thread = b.Special(Grid::kThread, kThreads);
  const ValueId own = b.Alloc(program::Space::kPrivate, DType::kF32, 1);
  b.Store(own, b.Int(0), b.Const(DType::kF32, 3));
  const auto divide = [&](ValueId pass) {
    const ValueId divisor = b.Load(own, b.Int(0));
    for (int64_t k = 0; k < kNumbers; ++k) {
      const ValueId place = b.Plus(b.Int(k * kThreads), thread);
      const ValueId x = b.Load(in, place);
      b.Store(out, b.Plus(b.Times(pass, kNumbers * kThreads), place),
              b.Alu(Op::kFDiv, DType::kF32, {x, divisor}));
    }
    b.Store(own, b.Int(0), b.Alu(Op::kAdd, DType::kF32, {divisor, b.Const(DType::kF32, 4)}));
  };
  const ValueId pass = b.Loop(kPasses);
  divide(pass);
  b.End(pass);
  divide(b.Int(kPasses));
  const Program program = b.Take(2);
  const auto kernel = Rendered(program);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_FALSE(absl::StrContains(kernel->object, "div.rn")) << kernel->object;
  ExpectRunsAsInterpreted(
      program, {Floats((kPasses + 1) * kNumbers * kThreads, 0), Floats(kNumbers * kThreads, 1)});
}

}  // namespace
}  // namespace outboard::test
