// Matrix products on the machine give the numbers of plain loops, in every order, without a report.
#include "tests/gpu/checks/matmul_kernels.h"

namespace outboard::ptx {
namespace {

MachineOptions ManyOrders() {
  MachineOptions options;
  options.runs = 8;
  options.seed = 5;
  return options;
}

TEST(Matmul, Mma_IsExactInEveryOrder) {
  MmaRun run(MmaKernel(), ManyOrders());
  EXPECT_TRUE(run.status.ok()) << run.status;
  EXPECT_TRUE(run.Correct());
  // Copies and ldmatrix touch each bank once a phase.
  EXPECT_EQ(run.bench.machine.counters().shared_accesses,
            run.bench.machine.counters().shared_wavefronts);
}
TEST(Matmul, MmaWithALostSwizzle_IsWrong) {
  const std::string text =
      absl::StrReplaceAll(MmaKernel(), {{"xor.b32 %r13, %r13, %r12;", "mov.b32 %r13, %r12;"}});
  EXPECT_FALSE(MmaRun(text).Correct());
}
TEST(Matmul, Wgmma_IsExactInEveryOrder) {
  WgmmaRun run(WgmmaKernel(), ManyOrders());
  EXPECT_TRUE(run.status.ok()) << run.status;
  EXPECT_TRUE(run.Correct());
  EXPECT_EQ(run.bench.machine.counters().products, 4u * 4 * (WgmmaRun::kDepth / 64));
}
TEST(Matmul, WgmmaWithAnotherStride_IsWrong) {
  const std::string text =
      absl::StrReplaceAll(WgmmaKernel(), {{"0x4000004000010000", "0x4000002000010000"}});
  EXPECT_FALSE(WgmmaRun(text).Correct());
}

}  // namespace
}  // namespace outboard::ptx
