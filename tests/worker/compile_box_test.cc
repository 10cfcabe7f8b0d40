// What a compile box that crashes or hangs costs: the kernel that did it, and nothing else.
#include "worker/compile_box.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include "compiler/ir/build.h"
#include "compiler/ir/check.h"
#include "compiler/ir/encoding.h"

namespace outboard::worker {
namespace {

std::string SomeKernel() {
  Graph g;
  const UOp* const range = g.MakeChecked(Op::kRange, DType::kI64, {}, {0, 8, 0});
  const auto place = [&](int64_t slot) {
    return g.MakeChecked(Op::kIndex, DType::kVoid, {g.MakeChecked(Op::kGlobal, DType::kF32, {}, {slot, 8}), range});
  };
  const UOp* const load = g.MakeChecked(Op::kLoad, DType::kVoid, {place(1)});
  const UOp* const store = g.MakeChecked(Op::kStore, DType::kVoid, {place(0), Add(g, load, load)});
  return ValueOrDie(EncodeGraph(Sink(g, {store}))).bytes;
}

class CompileBoxTest : public testing::Test {
 protected:
  CompileBoxTest() { setenv("OUTBOARD_BOX_FAULTS", "1", 1); }
  CompileBoxOptions options{.program = OUTBOARD_COMPILER, .deadline = std::chrono::milliseconds(3000)};
};

TEST_F(CompileBoxTest, Compiles) {
  CompileBox box(options);
  const std::string kernel = SomeKernel();
  const auto results = box.Compile({&kernel, 1});
  ASSERT_TRUE(results[0].ok()) << results[0].status();
  EXPECT_FALSE(results[0]->object.empty());
}

TEST_F(CompileBoxTest, CrashCostsOneKernelOfABatch) {
  CompileBox box(options);
  const std::vector<std::string> kernels = {SomeKernel(), "!abort"};
  const auto results = box.Compile(kernels);
  EXPECT_TRUE(results[0].ok()) << results[0].status();
  EXPECT_EQ(results[1].status().code(), absl::StatusCode::kResourceExhausted);
  const int pid = box.box_pid();
  EXPECT_EQ(box.Compile({&kernels[1], 1})[0].status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(box.box_pid(), pid) << "a kernel that brought a box down is not tried again";
}

TEST_F(CompileBoxTest, HangEndsAtTheDeadline) {
  options.deadline = std::chrono::milliseconds(300);
  CompileBox box(options);
  const std::string hang = "!hang";
  EXPECT_EQ(box.Compile({&hang, 1})[0].status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(CompileBoxTest, AKilledBoxIsReplaced) {
  CompileBox box(options);
  kill(box.box_pid(), SIGKILL);
  const std::string kernel = SomeKernel();
  EXPECT_TRUE(box.Compile({&kernel, 1})[0].ok());
}

TEST_F(CompileBoxTest, NotAKernelIsItsOwnError) {
  CompileBox box(options);
  const std::vector<std::string> kernels = {"not a graph", SomeKernel()};
  const auto results = box.Compile(kernels);
  EXPECT_EQ(results[0].status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(results[1].ok());
}

TEST_F(CompileBoxTest, MissingProgramIsSaid) {
  CompileBox box({.program = "/nonexistent/outboard-compiler"});
  const std::string kernel = SomeKernel();
  EXPECT_EQ(box.Compile({&kernel, 1})[0].status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace outboard::worker
