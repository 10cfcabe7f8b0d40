// Moves of the search over lists of Opts for blocks of threads: those that a list of rows needs to
// come to what the compiler would choose, one at a time. Each is offered, and computes what rows
// are.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "compiler/search/neighbours.h"
#include "tests/compiler/kernel_check.h"
#include "tests/compiler/ptx_run.h"
#include "tests/compiler/row_kernels.h"

namespace outboard::test {
namespace {

struct Move {
  const char* name;
  int64_t columns;
  const char *from, *to;
};
constexpr Move kMoves[] = {
    {"AVectorOfAnOutput", 1024, "LANE:1:32 WARP:1:8 SHARE:2:256 SHARE:3:256 GRID:0:1",
     "VECTOR:1:4 LANE:1:32 WARP:1:8 SHARE:2:256 SHARE:3:256 GRID:0:1"},
    {"AVectorOfAReduction", 1024, "LANE:1:32 WARP:1:4 SHARE:2:128 UNROLL:2:8 SHARE:3:128 GRID:0:1",
     "VECTOR:2:4 LANE:1:32 WARP:1:4 SHARE:2:128 UNROLL:2:2 SHARE:3:128 GRID:0:1"},
    {"AVectorBehindACluster", 2048,
     "CLUSTER:0:2 LANE:1:32 WARP:1:8 SHARE:2:256 SHARE:3:256 GRID:0:1",
     "CLUSTER:0:2 VECTOR:3:2 LANE:1:32 WARP:1:8 SHARE:2:256 SHARE:3:256 GRID:0:1"},
    {"ASectorsFirstByte", 1001, "LANE:1:32 WARP:1:8 UPCAST:1:4 SHARE:2:256 SHARE:3:256 GRID:0:1",
     "LANE:1:32 WARP:1:8 ALIGN:1:8 UPCAST:1:4 SHARE:2:256 SHARE:3:256 GRID:0:1"},
    {"OnceMoreForWhatBeginsEarlier", 1023,
     "LANE:1:32 WARP:1:8 SHARE:2:256 UNROLL:2:4 SHARE:3:256 GRID:0:1",
     "LANE:1:32 WARP:1:8 SHARE:2:256 ALIGN:2:8 UNROLL:2:5 SHARE:3:256 GRID:0:1"},
    {"AllAxesOfARow", 1001,
     "LANE:1:32 WARP:1:8 SHARE:2:256 UNROLL:2:4 SHARE:3:256 UNROLL:3:4 UPCAST:1:4 GRID:0:1",
     "LANE:1:32 WARP:1:8 ALIGN:1:8 SHARE:2:256 ALIGN:2:8 UNROLL:2:4 SHARE:3:256 ALIGN:3:8 "
     "UNROLL:3:4 UPCAST:1:4 GRID:0:1"},
    {"ARowThatIsKept", 1000,
     "LANE:1:32 WARP:1:4 SHARE:2:128 UNROLL:2:8 SHARE:3:128 UNROLL:3:8 UPCAST:1:8 GRID:0:1",
     "LANE:1:32 WARP:1:4 SHARE:2:128 UNROLL:2:8 SHARE:3:128 UNROLL:3:8 UPCAST:1:8 GRID:0:1 "
     "KEEP:0:4"},
    {"OtherRegistersOfARow", 1000,
     "LANE:1:32 WARP:1:4 SHARE:2:128 UNROLL:2:8 SHARE:3:128 UNROLL:3:8 UPCAST:1:8 GRID:0:1 "
     "KEEP:0:4",
     "LANE:1:32 WARP:1:4 SHARE:2:128 UNROLL:2:8 SHARE:3:128 UNROLL:3:8 UPCAST:1:8 GRID:0:1 "
     "KEEP:0:3"},
};

class SearchMoves : public testing::TestWithParam<Move> {};

TEST_P(SearchMoves, IsOfferedAndRight) {
  const Move& move = GetParam();
  const Target target = CudaTarget("sm_90", /*multiprocessors=*/1);
  const RowKernel kernel = {RowFunction::kSoftmax, DType::kF32, 2, move.columns};
  Graph g;
  const UOp* const sink = MakeRowKernel(g, kernel);
  std::vector<std::string> offered;
  for (const search::Neighbour& neighbour :
       search::Neighbours(sink, *codegen::ParseOpts(move.from), target))
    offered.push_back(codegen::OptsToString(neighbour.opts));
  EXPECT_EQ(std::ranges::count(offered, move.to), 1) << offered.size() << " are offered";
  const auto compiled =
      CompileKernel(sink, {.target = target, .opts = *codegen::ParseOpts(move.to)});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const Buffers start = RandomBuffers(sink, 1);
  Buffers got = start;
  ASSERT_EQ(RunOnPtxMachine(*compiled, got), absl::OkStatus()) << compiled->object;
  ExpectRows(kernel, got, RowsOf(kernel, start), ToleranceOf(kernel.dtype), /*absolute=*/true);
}

INSTANTIATE_TEST_SUITE_P(All, SearchMoves, testing::ValuesIn(kMoves),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace outboard::test
