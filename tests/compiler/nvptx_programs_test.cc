// The kernels of whole programs, as people train them, as PTX: each is compiled, stays in registers
// and is assembled without spills where NVIDIA's assembler is there. Prints what compiling takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "absl/strings/match.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/schedule/schedule.h"
#include "tests/compiler/ptx_run.h"
#include "tests/compiler/schedule_programs.h"

namespace outboard::test {
namespace {

class NvptxPrograms : public testing::TestWithParam<Program> {};

// Of this thread's own processor time.
double NowMs() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

TEST_P(NvptxPrograms, EveryKernel_IsPtxThatStaysInRegisters) {
  constexpr char kArch[] = "sm_90a";
  const Target target = CudaTarget(kArch, /*multiprocessors=*/132);
  const std::string ptxas = FindPtxas();
  Graph g;
  const UOp* const sink = RecordProgram(g, GetParam(), Size::kReal);
  const auto schedule = ValueOrDie(schedule::MakeSchedule(g, sink, target));
  Compiler compiler({.target = target});
  std::vector<double> ms;
  int assembled = 0;
  for (size_t k = 0; k < schedule.kernels.size(); ++k) {
    const double start = NowMs();
    const auto compiled = compiler.Compile(schedule.kernels[k].ast);
    ms.push_back(NowMs() - start);
    ASSERT_TRUE(compiled.ok()) << compiled.status() << KernelToString(schedule, k);
    EXPECT_FALSE(absl::StrContains(compiled->object, ".local")) << compiled->object;
    if (ptxas.empty() || compiled->tasks == 0) continue;
    const absl::Status status = Assemble(ptxas, compiled->object, kArch);
    EXPECT_TRUE(status.ok()) << status << KernelToString(schedule, k);
    ++assembled;
  }
  std::sort(ms.begin(), ms.end());
  if (!ms.empty())
    std::printf("%s: %zu kernels, %d assembled; PTX in %.2f ms (median), %.2f ms (longest)\n",
                GetParam().name.c_str(), ms.size(), assembled, ms[ms.size() / 2], ms.back());
}

INSTANTIATE_TEST_SUITE_P(All, NvptxPrograms, testing::ValuesIn(Programs()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace outboard::test
