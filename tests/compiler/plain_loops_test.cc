// What is compiled where the program of a plan that was chosen is not proved to store within its
// buffers: plainer loops, which compute the same. A kernel is never an error because of its plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "compiler/compile.h"
#include "compiler/proof/in_range.h"
#include "compiler/proof/program_range.h"
#include "compiler/target.h"
#include "tests/compiler/kernel_build.h"
#include "tests/compiler/kernel_check.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {
namespace {

// An array is stored with its axes turned round. A grid of blocks and threads is divided by six of
// them; a grid of blocks of one thread has no end within a block to be proved.
constexpr int64_t kSteps = 100;
const UOp* TurnedRound(Graph& g) {
  const std::vector<int64_t> dims = {2, 8, 5, 2, 5, 2};
  std::vector<const UOp*> ranges;
  for (const int64_t dim : dims)
    ranges.push_back(Range(g, static_cast<int64_t>(ranges.size()), dim));
  const UOp* const value = LoadAt(g, 1, DType::kF32, 1600, RowMajor(g, ranges, dims));
  const std::vector<const UOp*> turned(ranges.rbegin(), ranges.rend());
  const UOp* const place = RowMajor(g, turned, {dims.rbegin(), dims.rend()});
  return Sink(g, {StoreAt(g, 0, 1600, place, value)});
}

TEST(PlainLoops, AProgramThatIsNotProved_IsComputedByOneThreadABlock) {
  Graph g;
  const UOp* const sink = TurnedRound(g);
  ASSERT_EQ(proof::CheckInRange(sink), absl::OkStatus()) << "the kernel itself";
  const Buffers buffers = RandomBuffers(sink, 1);
  Buffers want = buffers;
  ASSERT_EQ(WalkKernel(sink, want), absl::OkStatus());
  for (const char* const arch : {"sm_80", "sm_90a"}) {
    SCOPED_TRACE(arch);
    CompileOptions plain{.target = CudaTarget(arch, 132), .no_opt = true};
    CompileOptions no_opts{.target = plain.target, .opts = std::vector<codegen::Opt>()};
    for (const CompileOptions& options : {plain, no_opts}) {
      const proof::FewerSteps steps(kSteps);
      absl::StatusOr<CompiledKernel> compiled = CompileKernel(sink, options);
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      EXPECT_THAT(compiled->given_up, testing::ElementsAre(testing::HasSubstr("is not shown")));
      EXPECT_EQ(compiled->threads[0], 1);
      EXPECT_EQ(compiled->tasks, 1600);
      compiled->given_up.clear();  // so that it may run (ptx_run.h)
      Buffers got = buffers;
      ASSERT_EQ(RunOnPtxMachine(*compiled, got), absl::OkStatus());
      EXPECT_EQ(got, want);
    }
  }
}

}  // namespace
}  // namespace outboard::test
