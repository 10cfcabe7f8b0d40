#include "tests/bench/gpu_matmul_figures.h"

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/operands/mma_tile.h"
#include "tests/bench/gpu_machine_code.h"
#include "tests/compiler/kernel_build.h"
#include "tests/compiler/kernel_run.h"
#include "tests/compiler/ptx_run.h"
#include "tests/gpu/ptx/machine.h"

namespace outboard::bench {
namespace {

using test::LoadAt;
using test::Range;
using test::RowMajor;

constexpr char kArch[] = "sm_90a";
constexpr int kMultiprocessors = 132;  // an H100's
// What is assembled, and what the machine runs: the same tile, fewer of them.
constexpr int64_t kLarge = 8192, kSide = 256, kSteps = 4096;

// y[m,n] = sum a[m,k] * b[k,n] over k, of bf16.
const UOp* Product(Graph& g, int64_t side, int64_t steps) {
  const UOp *m = Range(g, 0, side), *n = Range(g, 1, side), *k = test::ReduceRange(g, 2, steps);
  const UOp* const a = LoadAt(g, 1, DType::kBF16, side * steps, RowMajor(g, {m, k}, {side, steps}));
  const UOp* const b = LoadAt(g, 2, DType::kBF16, side * steps, RowMajor(g, {k, n}, {steps, side}));
  const UOp* const sum =
      test::Fold(g, Op::kAdd, Mul(g, Cast(g, a, DType::kF32), Cast(g, b, DType::kF32)), {k});
  return Sink(g, {test::StoreAt(g, 0, side * side, RowMajor(g, {m, n}, {side, side}),
                                Cast(g, sum, DType::kBF16))});
}

absl::StatusOr<CompiledKernel> Compiled(int64_t side, int64_t steps, const codegen::MmaTile& tile) {
  Graph g;
  CompileOptions options{.target = CudaTarget(kArch, kMultiprocessors)};
  options.opts = {{codegen::OptKind::kMma, 2, codegen::MmaAmount(tile)}};
  return CompileKernel(Product(g, side, steps), options);
}

// Two numbers of a few bits each, so that every sum is exact.
double ElementOf(int64_t row, int64_t column) {
  return static_cast<double>((row * 7 + column * 3) % 9 - 4) / 4;
}

absl::Status RunOnMachine(const codegen::MmaTile& tile, GpuMatmulFigures& figures) {
  OB_ASSIGN_OR_RETURN(const CompiledKernel kernel, Compiled(kSide, kSteps, tile));
  std::vector<std::string> buffers = {std::string(kSide * kSide * 2, '\0'),
                                      std::string(kSide * kSteps * 2, '\0'),
                                      std::string(kSide * kSteps * 2, '\0')};
  for (int64_t row = 0; row < kSide; ++row)
    for (int64_t k = 0; k < kSteps; ++k) {
      StoreFloat(DType::kBF16, ElementOf(row, k), buffers[1].data() + 2 * (row * kSteps + k));
      StoreFloat(DType::kBF16, ElementOf(k, row), buffers[2].data() + 2 * (k * kSide + row));
    }
  ptx::DeviceMemory memory;
  ptx::Machine machine(&memory);
  OB_ASSIGN_OR_RETURN(const auto module, machine.Load(kernel.object));
  ptx::LaunchConfig config;
  config.grid[0] = static_cast<uint32_t>(kernel.blocks[0]);
  config.block[0] = static_cast<uint32_t>(kernel.threads[0]);
  config.shared_bytes = 0;
  std::vector<uint64_t> addresses;
  for (const std::string& buffer : buffers) {
    addresses.push_back(memory.Allocate(buffer.size()));
    OB_CHECK(memory.Write(addresses.back(), buffer.data(), buffer.size()));
  }
  config.parameters.resize(addresses.size() * sizeof(uint64_t));
  std::memcpy(config.parameters.data(), addresses.data(), config.parameters.size());
  OB_RETURN_IF_ERROR(machine.Launch(*module, kernel.symbol, config));
  if (!machine.reports().empty())
    return absl::FailedPreconditionError(machine.reports()[0].ToString());
  OB_CHECK(memory.Read(addresses[0], buffers[0].data(), buffers[0].size()));
  for (int64_t row = 0; row < kSide; row += 37)
    for (int64_t column = 0; column < kSide; column += 29) {
      double sum = 0;
      for (int64_t k = 0; k < kSteps; ++k) sum += ElementOf(row, k) * ElementOf(k, column);
      const double got = LoadFloat(DType::kBF16, buffers[0].data() + 2 * (row * kSide + column));
      if (got != RoundTo(DType::kBF16, sum))
        return absl::InternalError(
            absl::StrCat("row ", row, " column ", column, " is ", got, ", not ", sum));
    }
  const ptx::Counters& counters = machine.counters();
  figures.bank_ways = static_cast<double>(counters.shared_wavefronts) /
                      static_cast<double>(counters.shared_accesses);
  const double blocks = static_cast<double>(kernel.blocks[0]);
  const double least =
      (blocks * static_cast<double>((tile.rows + tile.columns) * kSteps) + kSide * kSide) * 2 / 32;
  figures.sectors_ratio = static_cast<double>(counters.global_sectors) / least;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GpuMatmulFigures> MeasureGpuMatmul() {
  Graph g;
  OB_ASSIGN_OR_RETURN(const codegen::LoopNest kernel,
                      codegen::AnalyzeKernel(Product(g, kLarge, kLarge)));
  OB_ASSIGN_OR_RETURN(const auto plan, codegen::PlanMma(kernel, CudaTarget(kArch, kMultiprocessors),
                                                        /*opts=*/nullptr));
  if (!plan) return absl::InternalError("a large product is not left to matrix units");
  GpuMatmulFigures figures;
  const auto begin = std::chrono::steady_clock::now();
  OB_ASSIGN_OR_RETURN(const CompiledKernel large, Compiled(kLarge, kLarge, plan->tile));
  figures.compile_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  const std::string ptxas = test::FindPtxas(), nvdisasm = test::FindNvdisasm();
  if (!ptxas.empty()) {
    OB_ASSIGN_OR_RETURN(figures.spill_bytes, test::Assemble(ptxas, large.object, kArch));
    if (!nvdisasm.empty()) {
      OB_ASSIGN_OR_RETURN(const MachineCode code,
                          MachineCodeOf(ptxas, nvdisasm, large.object, kArch));
      const std::vector<CodeLoop> loops = LoopsWith("HMMA", code.listing);
      const auto main_loop =
          std::max_element(loops.begin(), loops.end(), [](const CodeLoop& a, const CodeLoop& b) {
            return a.products < b.products;
          });
      figures.instructions_per_hmma = main_loop == loops.end() ? 0 : main_loop->PerProduct();
    }
  }
  OB_RETURN_IF_ERROR(RunOnMachine(plan->tile, figures));
  return figures;
}

}  // namespace outboard::bench
