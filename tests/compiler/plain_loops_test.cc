// What is compiled where the program of a plan that was chosen is not proved to store within its
// buffers: plainer loops, which compute the same. A kernel is never an error because of its plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "compiler/compile.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/program/expand.h"
#include "compiler/proof/in_range.h"
#include "compiler/proof/program_range.h"
#include "compiler/target.h"
#include "tests/compiler/kernel_build.h"
#include "tests/compiler/kernel_check.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {
namespace {

// An array is stored with its axes turned round: a grid of blocks and threads is divided by as many
// axes as there are. With `few` steps of proof it is not shown to be in range.
struct Turned {
  std::vector<int64_t> dims;
  int64_t few;
  int64_t threads, blocks;  // of the program that is proved by them
};
const UOp* TurnedRound(Graph& g, const std::vector<int64_t>& dims) {
  std::vector<const UOp*> ranges;
  int64_t elements = 1;
  for (const int64_t dim : dims) {
    ranges.push_back(Range(g, static_cast<int64_t>(ranges.size()), dim));
    elements *= dim;
  }
  const UOp* const value = LoadAt(g, 1, DType::kF32, elements, RowMajor(g, ranges, dims));
  const std::vector<const UOp*> turned(ranges.rbegin(), ranges.rend());
  const UOp* const place = RowMajor(g, turned, {dims.rbegin(), dims.rend()});
  return Sink(g, {StoreAt(g, 0, elements, place, value)});
}

// A grid of blocks of the last range's threads is divided by the other axes, and has no end within
// a block but that range's.
TEST(PlainLoops, AProgramThatIsNotProved_IsComputedByThreadsOfTheLastRange) {
  const Turned cases[] = {
      {{2, 8, 5, 2, 5, 6}, 55, 8, 800},
      {{2, 8, 5, 2, 5, 2}, 100, 2, 800},
  };
  for (const Turned& turned : cases) {
    SCOPED_TRACE(testing::Message() << turned.dims.back() << ", " << turned.few << " steps");
    Graph g;
    const UOp* const sink = TurnedRound(g, turned.dims);
    ASSERT_EQ(proof::CheckInRange(sink), absl::OkStatus()) << "the kernel itself";
    const Buffers buffers = RandomBuffers(sink, 1);
    Buffers want = buffers;
    ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
    for (const char* const arch : {"sm_80", "sm_90a"}) {
      SCOPED_TRACE(arch);
      CompileOptions plain{.target = CudaTarget(arch, 132), .no_opt = true};
      CompileOptions no_opts{.target = plain.target, .opts = std::vector<codegen::Opt>()};
      for (const CompileOptions& options : {plain, no_opts}) {
        const proof::FewerSteps steps(turned.few);
        absl::StatusOr<CompiledKernel> compiled = CompileKernel(sink, options);
        ASSERT_TRUE(compiled.ok()) << compiled.status();
        EXPECT_THAT(compiled->given_up, testing::ElementsAre(testing::HasSubstr("is not shown")));
        EXPECT_EQ(compiled->threads[0], turned.threads);
        EXPECT_EQ(compiled->tasks, turned.blocks);
        compiled->given_up.clear();  // so that it may run (ptx_run.h)
        Buffers got = buffers;
        ASSERT_EQ(RunOnPtxMachine(*compiled, got), absl::OkStatus());
        EXPECT_EQ(got, want);
      }
    }
  }
}

// Only what is not proved gives way: another error of a pass is one.
TEST(PlainLoops, AnErrorOfTheProof_IsToldApart) {
  Graph g;
  const UOp* const sink = TurnedRound(g, {2, 8, 5, 2, 5, 2});
  const codegen::LoopNest nest = ValueOrDie(codegen::AnalyzeKernel(sink));
  const proof::FewerSteps steps(100);
  const auto program = program::ExpandThreads(nest, program::MapToThreads(nest, 256));
  EXPECT_TRUE(proof::IsNotInRange(program.status())) << program.status();
  EXPECT_FALSE(proof::IsNotInRange(absl::InternalError("program: is not shown to be within")));
  EXPECT_FALSE(proof::IsNotInRange(absl::OkStatus()));
}

}  // namespace
}  // namespace outboard::test
