// Indices of kernels for GPUs: of 32 bits where they and all that they are computed from fit, of 64
// bits where not. The buffers beyond 2^31 elements are address space alone: the kernel gets an
// address so far before what is allocated that only the right 64-bit sum gets there, and the PTX
// machine reports all others.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "base/check.h"
#include "compiler/program/program.h"
#include "compiler/program/spec.h"
#include "compiler/render/ptx/ptx_renderer.h"
#include "tests/gpu/ptx/machine.h"

namespace outboard::test {
namespace {

using program::ProgramBuilder;
using program::ValueId;

constexpr int64_t kThreads = 32;
constexpr int64_t kTwo31 = int64_t{1} << 31;
constexpr int64_t kVarMax = 100;

struct Case {
  const char* what;
  int64_t elements;  // of the buffer that is read
  // The element that a thread reads, which is below `elements` for every var up to kVarMax.
  std::function<ValueId(ProgramBuilder& b, ValueId var, ValueId thread)> index;
  std::function<int64_t(int64_t var, int64_t thread)> want;
  bool is_small;
};

const Case kCases[] = {
    {"rows of a small buffer", (kVarMax + 1) * 1000,
     [](ProgramBuilder& b, ValueId var, ValueId thread) {
       return b.Plus(b.Times(var, 1000), thread);
     },
     [](int64_t var, int64_t thread) { return 1000 * var + thread; }, true},
    {"the last index is 2^31 - 1", kTwo31,
     [](ProgramBuilder& b, ValueId var, ValueId thread) {
       return b.Plus(b.Plus(b.Times(var, 1 << 20), thread),
                     b.Int(kTwo31 - kThreads - kVarMax * (1 << 20)));
     },
     [](int64_t var, int64_t thread) {
       return (kTwo31 - kThreads - kVarMax * (1 << 20)) + (var << 20) + thread;
     },
     true},
    {"beyond 2^31", 3 * kTwo31,
     [](ProgramBuilder& b, ValueId var, ValueId thread) {
       return b.Plus(b.Plus(b.Times(var, (1 << 20) + 1), b.Plus(thread, b.Int(1))),
                     b.Times(b.Plus(thread, var), 1 << 24));
     },
     [](int64_t var, int64_t thread) {
       return var * ((1 << 20) + 1) + thread + 1 + (thread + var) * (1 << 24);
     },
     false},
    {"long rows", (kVarMax + 1) * 50'000'000,
     [](ProgramBuilder& b, ValueId var, ValueId thread) {
       return b.Plus(b.Times(var, 50'000'000), thread);
     },
     [](int64_t var, int64_t thread) { return 50'000'000 * var + thread; }, false},
    {"a window far away", 3 * kTwo31,
     [](ProgramBuilder& b, ValueId, ValueId thread) {
       return b.Plus(thread, b.Int(3 * kTwo31 - kThreads));
     },
     [](int64_t, int64_t thread) { return 3 * kTwo31 - kThreads + thread; }, true},
    // The index fits, and a part of it does not.
    {"a remainder of what does not fit", kThreads * 1000,
     [](ProgramBuilder& b, ValueId var, ValueId thread) {
       return b.Plus(b.Modulo(b.Times(var, 3'000'000'007), 999 * kThreads), thread);
     },
     [](int64_t var, int64_t thread) { return var * 3'000'000'007 % (999 * kThreads) + thread; },
     false},
    {"less than what does not fit", (kVarMax + 1) * 16 + kThreads,
     [](ProgramBuilder& b, ValueId var, ValueId thread) {
       const ValueId far = b.Times(var, 100'000'000);
       return b.Plus(b.Divide(far, 6'250'000), thread);
     },
     [](int64_t var, int64_t thread) { return 16 * var + thread; }, false},
};

CompiledKernel Rendered(const Case& c) {
  ProgramBuilder b;
  const ValueId out = b.Buffer(DType::kF32, 0, kThreads), in = b.Buffer(DType::kF32, 1, c.elements);
  const ValueId thread = b.Special(program::Grid::kThread, kThreads);
  const ValueId var =
      b.Add({.code = program::Code::kVar, .dtype = DType::kI64, .imm = {0, 0, kVarMax}});
  b.Store(out, thread, b.Load(in, c.index(b, var, thread)));
  const program::Program program = b.Take(2);
  EXPECT_EQ(program::CheckProgram(program, "none", program::Phase::kFinal), absl::OkStatus());
  const auto renderer = ValueOrDie(render::MakePtxRenderer(CudaTarget("sm_90", 132)));
  return ValueOrDie(renderer->Render(program, "k"));
}

// Runs it for `var`, with memory for [first, end) of the elements alone, each its own number less
// the first one.
void ExpectReads(const Case& c, const CompiledKernel& kernel, int64_t var) {
  int64_t first = c.elements, end = 0;
  for (int64_t thread = 0; thread < kThreads; ++thread) {
    first = std::min(first, c.want(var, thread));
    end = std::max(end, c.want(var, thread) + 1);
  }
  ASSERT_LE(end, c.elements);
  constexpr int64_t kSparse = 1 << 22;  // of a case whose threads read far apart: one alone
  const bool sparse = end - first > kSparse;
  if (sparse) end = first + 1;
  ptx::DeviceMemory memory;
  ptx::Machine machine(&memory);
  const auto module = ValueOrDie(machine.Load(kernel.object));
  std::vector<float> values(static_cast<size_t>(end - first)), got(kThreads);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const uint64_t out = memory.Allocate(kThreads * sizeof(float)),
                 in = memory.Allocate(values.size() * sizeof(float)),
                 vars = memory.Allocate(sizeof var);
  ASSERT_TRUE(memory.Write(in, values.data(), values.size() * sizeof(float)));
  ASSERT_TRUE(memory.Write(vars, &var, sizeof var));
  ptx::LaunchConfig config;
  config.block[0] = sparse ? 1 : kThreads;
  for (const uint64_t parameter : {out, in - static_cast<uint64_t>(first) * sizeof(float), vars}) {
    const auto* const bytes = reinterpret_cast<const uint8_t*>(&parameter);
    config.parameters.insert(config.parameters.end(), bytes, bytes + sizeof parameter);
  }
  ASSERT_EQ(machine.Launch(*module, kernel.symbol, config), absl::OkStatus()) << kernel.object;
  for (const ptx::Report& report : machine.reports()) ADD_FAILURE() << report.ToString();
  ASSERT_TRUE(memory.Read(out, got.data(), got.size() * sizeof(float)));
  for (int64_t thread = 0; thread < (sparse ? 1 : kThreads); ++thread)
    EXPECT_EQ(got[static_cast<size_t>(thread)], static_cast<float>(c.want(var, thread) - first))
        << "thread " << thread << " var " << var << kernel.object;
}

// Products and remainders of 64 bits; sums of 64 bits are those of addresses, too.
bool HasWideArithmetic(const std::string& ptx) {
  return absl::StrContains(ptx, "mul.lo.s64") || absl::StrContains(ptx, "mad.lo.s64") ||
         absl::StrContains(ptx, "rem.s64") || absl::StrContains(ptx, "rem.u64") ||
         absl::StrContains(ptx, "div.s64") || absl::StrContains(ptx, "div.u64") ||
         absl::StrContains(ptx, "mul.hi") || absl::StrContains(ptx, "shl.b64");
}

TEST(IndexWidth, BelowTwoToThe31_IndicesHaveThirtyTwoBits) {
  for (const Case& c : kCases) {
    if (!c.is_small) continue;
    SCOPED_TRACE(c.what);
    const CompiledKernel kernel = Rendered(c);
    EXPECT_FALSE(HasWideArithmetic(kernel.object)) << kernel.object;
    for (const int64_t var : {int64_t{0}, int64_t{77}, kVarMax}) ExpectReads(c, kernel, var);
  }
}

TEST(IndexWidth, BeyondTwoToThe31_IndicesHaveSixtyFourBits) {
  for (const Case& c : kCases) {
    if (c.is_small) continue;
    SCOPED_TRACE(c.what);
    const CompiledKernel kernel = Rendered(c);
    for (const int64_t var : {int64_t{0}, int64_t{77}, kVarMax}) ExpectReads(c, kernel, var);
  }
}

}  // namespace
}  // namespace outboard::test
