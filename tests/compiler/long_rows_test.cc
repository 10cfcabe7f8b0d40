// Rows that 256 threads cannot keep in registers: up to 1,024 of them read a row once, of 32,768
// elements at most (docs/decisions/186-long-rows.md). By what the kernels compute on the PTX
// machine, the sectors that it counts, and what NVIDIA's assembler says of their registers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "compiler/compile.h"
#include "tests/compiler/kernel_build.h"
#include "tests/compiler/kernel_check.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {
namespace {

constexpr int64_t kRows = 2;
constexpr uint64_t kSectorBytes = 32;

// exp(x - max x) / sum; over x itself where `in_place`.
const UOp* Softmax(Graph& g, DType dtype, int64_t columns, bool in_place) {
  const UOp *row = Range(g, 0, kRows), *column = Range(g, 1, columns);
  const UOp *k = ReduceRange(g, 2, columns), *l = ReduceRange(g, 3, columns);
  const int64_t slot = in_place ? 0 : 1;
  const auto x = [&](const UOp* at) {
    const UOp* const index = RowMajor(g, {row, at}, {kRows, columns});
    return Cast(g, LoadAt(g, slot, dtype, kRows * columns, index), DType::kF32);
  };
  const UOp* const max = Fold(g, Op::kMax, x(k), {k});
  const auto exponential = [&](const UOp* at) {
    return Alu(g, Op::kExp, Add(g, x(at), Alu(g, Op::kNeg, max)));
  };
  const UOp* const value =
      Alu(g, Op::kFDiv, exponential(column), Fold(g, Op::kAdd, exponential(l), {l}));
  return Sink(g, {StoreAt(g, 0, kRows * columns, RowMajor(g, {row, column}, {kRows, columns}),
                          Cast(g, value, dtype))});
}

// The same, by rows; a walk of the kernel would compute both reductions for every element.
std::string SoftmaxOf(const std::string& logits, DType dtype, int64_t columns) {
  std::string out = logits;
  const int width = ByteWidth(dtype);
  for (int64_t row = 0; row < kRows; ++row) {
    const char* const x = logits.data() + row * columns * width;
    double max = -INFINITY, sum = 0;
    for (int64_t c = 0; c < columns; ++c) max = std::max(max, LoadFloat(dtype, x + c * width));
    for (int64_t c = 0; c < columns; ++c) sum += std::exp(LoadFloat(dtype, x + c * width) - max);
    for (int64_t c = 0; c < columns; ++c)
      StoreFloat(dtype, RoundTo(dtype, std::exp(LoadFloat(dtype, x + c * width) - max) / sum),
                 out.data() + (row * columns + c) * width);
  }
  return out;
}

// Whether each number is within one in a hundred of the one that is wanted: they are small.
void ExpectNear(const std::string& got, const std::string& want, DType dtype) {
  const int width = ByteWidth(dtype);
  for (size_t at = 0; at < want.size(); at += static_cast<size_t>(width)) {
    const double x = LoadFloat(dtype, got.data() + at), y = LoadFloat(dtype, want.data() + at);
    ASSERT_LE(std::abs(x - y), 0.01 * y) << "element " << at / static_cast<size_t>(width);
  }
}

struct Case {
  const char* what;
  DType dtype;
  int64_t columns;
  bool in_place;
  int64_t threads;
};
constexpr Case kCases[] = {
    {"as many as 256 threads keep", DType::kF32, 8192, false, 256},
    {"twice as many", DType::kF32, 16384, false, 512},
    {"four times as many", DType::kF32, 32768, false, 1024},
    {"no whole number of vectors for each thread", DType::kF32, 15'004, false, 512},
    {"more of that than 512 threads keep", DType::kF32, 30'004, false, 256},
    {"of bf16", DType::kBF16, 32768, false, 1024},
    {"over the logits", DType::kF32, 32768, true, 256},
};

TEST(LongRows, AreReadOnce) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.what);
    Graph g;
    const UOp* const sink = Softmax(g, c.dtype, c.columns, c.in_place);
    const auto compiled = CompileKernel(sink, {.target = CudaTarget("sm_90", 132)});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    EXPECT_EQ(compiled->threads[0], c.threads);
    const Buffers start = RandomBuffers(sink, 1);
    const std::string want = SoftmaxOf(start.back(), c.dtype, c.columns);
    Buffers got = start;
    MachineCounts counts;
    const absl::Status ran = RunOnPtxMachine(*compiled, got, {}, 1, nullptr, &counts);
    ASSERT_TRUE(ran.ok()) << ran;
    ExpectNear(got[0], want, c.dtype);
    if (HasFatalFailure()) return;
    // Others are read again: there is no room, or loads of what a kernel stores are not merged.
    if (c.in_place || c.columns > c.threads * 32) continue;
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
      const auto compiled = CompileKernel(Softmax(g, c.dtype, c.columns, c.in_place),
                                          {.target = CudaTarget(arch, 132)});
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
