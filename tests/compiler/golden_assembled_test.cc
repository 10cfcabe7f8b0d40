// The golden kernels (golden_kernels.h) through NVIDIA's assembler, for every kind of GPU that is
// compiled for: nothing spilled, nothing in a thread's own memory, no warning.
//
// Skipped by name where there is no ptxas; `scripts/setup --assembler` fetches it. With
// OUTBOARD_PTX_FOLDER=path the texts are left there, to be compared with those of another build.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/schedule/schedule.h"
#include "tests/compiler/golden_kernels.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/schedule_programs.h"

namespace outboard::test {
namespace {

struct GoldenPtx {
  std::string name, ptx;
  absl::StatusOr<Assembled> assembled = absl::UnknownError("not assembled");
};

// The kernels of all goldens for one kind of GPU, equal ones once.
std::vector<GoldenPtx> GoldenPtxFor(const std::string& arch) {
  const Target target = CudaTarget(arch, /*multiprocessors=*/132);
  Compiler compiler({.target = target});
  absl::flat_hash_set<std::string> known;
  std::vector<GoldenPtx> kernels;
  for (const GoldenKernel& golden : GoldenKernels()) {
    const Program program = {golden.name, [&](Size) { realize(golden.results()); }};
    Graph graph;
    const UOp* const sink = RecordProgram(graph, program, Size::kReal);
    const auto schedule = ValueOrDie(schedule::MakeSchedule(graph, sink, target));
    for (size_t k = 0; k < schedule.kernels.size(); ++k) {
      auto compiled = compiler.Compile(schedule.kernels[k].ast);
      EXPECT_TRUE(compiled.ok()) << golden.name << ": " << compiled.status();
      if (!compiled.ok() || compiled->tasks == 0 || !known.insert(compiled->object).second)
        continue;
      kernels.push_back({absl::StrCat(golden.name, " ", k), std::move(compiled->object)});
    }
  }
  return kernels;
}

void AssembleAll(const std::string& ptxas, const std::string& arch,
                 std::vector<GoldenPtx>& kernels) {
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::clamp(std::thread::hardware_concurrency(), 1u, 4u); ++i)
    threads.emplace_back([&] {
      for (size_t k; (k = next++) < kernels.size();)
        kernels[k].assembled = AssembleKernel(ptxas, kernels[k].ptx, arch);
    });
  for (std::thread& thread : threads) thread.join();
}

class GoldenAssembled : public testing::TestWithParam<const char*> {};

TEST_P(GoldenAssembled, EveryKernel_KeepsAllInRegisters) {
  const std::string ptxas = FindPtxas();
  if (ptxas.empty()) GTEST_SKIP() << "there is no ptxas; scripts/setup --assembler fetches it";
  std::vector<GoldenPtx> kernels = GoldenPtxFor(GetParam());
  EXPECT_GE(kernels.size(), GoldenKernels().size() - 1) << "goldens without a kernel";
  if (const char* const folder = std::getenv("OUTBOARD_PTX_FOLDER"); folder != nullptr)
    for (const GoldenPtx& kernel : kernels)
      std::ofstream(absl::StrCat(folder, "/", kernel.name, " ", GetParam(), ".ptx")) << kernel.ptx;
  AssembleAll(ptxas, GetParam(), kernels);
  int64_t registers_max = 0;
  for (const auto& [name, ptx, assembled] : kernels) {
    ASSERT_TRUE(assembled.ok()) << name << ": " << assembled.status();
    EXPECT_EQ(assembled->spill_bytes, 0) << name << ptx;
    EXPECT_EQ(assembled->stack_bytes, 0) << name << ptx;
    EXPECT_EQ(assembled->warnings, 0) << name << ptx;
    registers_max = std::max(registers_max, assembled->registers);
  }
  std::printf("%s: %zu kernels, at most %lld registers\n", GetParam(), kernels.size(),
              static_cast<long long>(registers_max));
}

INSTANTIATE_TEST_SUITE_P(Gpus, GoldenAssembled,
                         testing::Values("sm_80", "sm_89", "sm_90", "sm_90a"),
                         [](const auto& info) { return std::string(info.param); });

// A kernel that needs more registers than there are is seen: else the checks above show nothing.
TEST(GoldenAssembledChecks, ALocalArray_IsSeen) {
  const std::string ptxas = FindPtxas();
  if (ptxas.empty()) GTEST_SKIP() << "there is no ptxas; scripts/setup --assembler fetches it";
  const auto assembled = AssembleKernel(ptxas, R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 p) {
  .local .align 4 .b8 frame[64];
  .reg .b64 %rd<5>;
  .reg .b32 %r<3>;
  ld.param.u64 %rd1, [p];
  cvta.to.global.u64 %rd2, %rd1;
  ld.global.u32 %r1, [%rd2];
  and.b32 %r1, %r1, 15;
  mul.wide.u32 %rd3, %r1, 4;
  mov.u64 %rd4, frame;
  add.u64 %rd4, %rd4, %rd3;
  st.local.u32 [%rd4], %r1;
  ld.local.u32 %r2, [frame+8];
  st.global.u32 [%rd2], %r2;
  ret;
})",
                                        "sm_80");
  ASSERT_TRUE(assembled.ok()) << assembled.status();
  EXPECT_GE(assembled->stack_bytes, 64);
}

}  // namespace
}  // namespace outboard::test
