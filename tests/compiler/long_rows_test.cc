// Rows that 256 threads cannot keep in registers: up to 1,024 of them read a row once, of 32,768
// elements at most (docs/decisions/186-long-rows.md). By what the kernels compute on the PTX
// machine, the sectors that it counts, and what NVIDIA's assembler says of their registers.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "compiler/compile.h"
#include "tests/compiler/kernel_check.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/ptx_run.h"
#include "tests/compiler/row_kernels.h"

namespace outboard::test {
namespace {

constexpr int64_t kRows = 2;
constexpr uint64_t kSectorBytes = 32;

struct Case {
  const char* what;
  DType dtype;
  int64_t columns;
  bool in_place;
  int64_t threads;

  RowKernel kernel() const { return {RowFunction::kSoftmax, dtype, kRows, columns, in_place}; }
};
constexpr Case kCases[] = {
    {"as many as 256 threads keep", DType::kF32, 8192, false, 256},
    {"twice as many", DType::kF32, 16384, false, 512},
    {"four times as many", DType::kF32, 32768, false, 1024},
    {"no whole number of vectors for each thread", DType::kF32, 15'004, false, 512},
    {"more of that", DType::kF32, 30'004, false, 1024},
    {"of bf16", DType::kBF16, 32768, false, 1024},
    {"over the logits", DType::kF32, 32768, true, 1024},
    {"of bf16, over the logits", DType::kBF16, 20'008, true, 1024},
};

TEST(LongRows, AreReadOnce) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.what);
    Graph g;
    const UOp* const sink = MakeRowKernel(g, c.kernel());
    const auto compiled = CompileKernel(sink, {.target = CudaTarget("sm_90", 132)});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    EXPECT_EQ(compiled->threads[0], c.threads);
    const Buffers start = RandomBuffers(sink, 1);
    const Buffers want = RowsOf(c.kernel(), start);
    Buffers got = start;
    MachineCounts counts;
    const absl::Status ran = RunOnPtxMachine(*compiled, got, {}, 1, nullptr, &counts);
    ASSERT_TRUE(ran.ok()) << ran;
    ExpectRows(c.kernel(), got, want, 0.01, /*absolute=*/false);
    if (HasFatalFailure()) return;
    const auto bytes = static_cast<uint64_t>(2 * kRows * c.columns * ByteWidth(c.dtype));
    EXPECT_LE(static_cast<double>(counts.global_sectors),
              1.05 * static_cast<double>(bytes / kSectorBytes));
  }
}

TEST(LongRows, FitTheRegistersOfTheirThreads) {
  const std::string ptxas = FindPtxas();
  if (ptxas.empty()) GTEST_SKIP() << "there is no ptxas; scripts/setup --assembler fetches it";
  for (const char* arch : {"sm_80", "sm_90"})
    for (const Case& c : kCases) {
      SCOPED_TRACE(c.what);
      Graph g;
      const auto compiled =
          CompileKernel(MakeRowKernel(g, c.kernel()), {.target = CudaTarget(arch, 132)});
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      const auto assembled = AssembleKernel(ptxas, compiled->object, arch);
      ASSERT_TRUE(assembled.ok()) << assembled.status();
      std::printf("%s %s: %lld registers\n", arch, c.what,
                  static_cast<long long>(assembled->registers));
      EXPECT_EQ(assembled->spill_bytes + assembled->stack_bytes, 0);
      EXPECT_LE(assembled->registers * c.threads, 65536);
    }
}

}  // namespace
}  // namespace outboard::test
