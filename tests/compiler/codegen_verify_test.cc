// A candidate's results against those of plain loops.
#include <gtest/gtest.h>

#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/search/verify.h"
#include "tests/compiler/kernel_run.h"
#include "tests/compiler/kernel_shapes.h"

namespace outboard::test {
namespace {

using search::Verifier;

CompiledKernel Compiled(const UOp* sink, const std::string& opts) {
  return ValueOrDie(CompileKernel(sink, {.opts = ValueOrDie(codegen::ParseOpts(opts))}));
}

absl::Status RunTasks(const CompiledKernel& kernel, std::span<void* const> buffers, int64_t begin,
                      int64_t end) {
  const auto loaded = LoadedKernel::Load(kernel);
  if (!loaded.ok()) return loaded.status();
  (*loaded)->Run(buffers.data(), begin, end);
  return absl::OkStatus();
}

TEST(SearchVerify, ARightCandidatePassesAndAWrongOneDoesNot) {
  Graph g;
  const UOp* const sink = MatMul(g, 20, 24, 12);
  Verifier verifier = ValueOrDie(Verifier::Make(sink, Compiled(sink, "THREAD:0:2"), RunTasks));
  const char* const opts = "VECTOR:1:8 UPCAST:0:4 BLOCK:0:8 THREAD:0:1 LOCAL:1:1";
  EXPECT_EQ(verifier.Check(Compiled(sink, opts)), absl::OkStatus());
  EXPECT_EQ(verifier.Check(Compiled(MatMul(g, 20, 24, 11), "THREAD:0:1")).code(),
            absl::StatusCode::kDataLoss);
  // One element left out: the last task's.
  CompiledKernel less = Compiled(sink, "THREAD:0:2");
  --less.tasks;
  EXPECT_EQ(verifier.Check(less).code(), absl::StatusCode::kDataLoss);
}

TEST(SearchVerify, AnErrorOfTheRunIsHandedOn) {
  Graph g;
  const UOp* const sink = MatMul(g, 4, 4, 4);
  const CompiledKernel kernel = Compiled(sink, "");
  bool fails = true;
  const auto run = [&](const CompiledKernel& k, std::span<void* const> buffers, int64_t begin,
                       int64_t end) {
    return fails ? absl::UnavailableError("no device") : RunTasks(k, buffers, begin, end);
  };
  EXPECT_EQ(Verifier::Make(sink, kernel, run).status().code(), absl::StatusCode::kUnavailable);
  fails = false;
  Verifier verifier = ValueOrDie(Verifier::Make(sink, kernel, run));
  EXPECT_EQ(verifier.Check(kernel), absl::OkStatus());
  fails = true;
  EXPECT_EQ(verifier.Check(kernel).code(), absl::StatusCode::kUnavailable);
}

// Of every type, in place and not.
TEST(SearchVerify, TypesAndBuffersThatAreUpdated) {
  for (const DType dtype : {DType::kI8, DType::kI64, DType::kF8E4M3, DType::kF8E5M2, DType::kF16,
                            DType::kBF16, DType::kF32, DType::kF64}) {
    Graph g;
    const UOp* const i = Range(g, 0, 70);
    const UOp *x = LoadAt(g, 0, dtype, 70, i), *y = LoadAt(g, 1, dtype, 70, i);
    const auto sink = [&](const UOp* value, int64_t slot) {
      return Sink(g, {StoreAt(g, slot, 70, i, value)});
    };
    for (const int64_t slot : {0, 2}) {
      const UOp* const sum = sink(Add(g, Add(g, x, y), y), slot);
      Verifier verifier = ValueOrDie(Verifier::Make(sum, Compiled(sum, ""), RunTasks));
      EXPECT_EQ(verifier.Check(Compiled(sum, "VECTOR:0:4 UPCAST:0:2")), absl::OkStatus());
      EXPECT_EQ(verifier.Check(Compiled(sink(Add(g, x, x), slot), "")).code(),
                absl::StatusCode::kDataLoss)
          << Name(dtype);
    }
  }
}

// A mask of all ones, as comparisons of integers make.
TEST(SearchVerify, ResultsOfAllOnesAreComparedToo) {
  for (const DType dtype : {DType::kI8, DType::kI32, DType::kI64}) {
    Graph g;
    const UOp* const i = Range(g, 0, 70);
    const UOp *x = LoadAt(g, 1, dtype, 70, i), *y = LoadAt(g, 2, dtype, 70, i);
    const auto mask = [&](int64_t if_less) {
      return Sink(g, {StoreAt(g, 0, 70, i,
                              Where(g, Alu(g, Op::kCmpLt, x, y), ConstInt(g, dtype, if_less),
                                    ConstInt(g, dtype, 0)))});
    };
    Verifier verifier = ValueOrDie(Verifier::Make(mask(-1), Compiled(mask(-1), ""), RunTasks));
    EXPECT_EQ(verifier.Check(Compiled(mask(-1), "VECTOR:0:4")), absl::OkStatus());
    for (const int64_t wrong : {0, 77})
      EXPECT_EQ(verifier.Check(Compiled(mask(wrong), "")).code(), absl::StatusCode::kDataLoss)
          << Name(dtype) << " " << wrong;
  }
}

// Two thousand million operations by plain loops would take seconds: a part of them is compared.
TEST(SearchVerify, LargeKernelsAreComparedInPart) {
  Graph g;
  const UOp* const sink = MatMul(g, 1024, 1024, 1024);
  int64_t tasks = 0;
  Verifier verifier = ValueOrDie(Verifier::Make(
      sink, Compiled(sink, "THREAD:0:2"),
      [&](const CompiledKernel& k, std::span<void* const> buffers, int64_t begin, int64_t end) {
        tasks += end - begin;
        return RunTasks(k, buffers, begin, end);
      }));
  EXPECT_LT(tasks, 1024 * 1024 / 4);
  EXPECT_GT(tasks, 1024);
  CompiledKernel good = ValueOrDie(CompileKernel(sink));
  EXPECT_EQ(verifier.Check(good), absl::OkStatus());
  --good.tasks;
  EXPECT_EQ(verifier.Check(good).code(), absl::StatusCode::kDataLoss) << "the last rows are seen";
}

}  // namespace
}  // namespace outboard::test
