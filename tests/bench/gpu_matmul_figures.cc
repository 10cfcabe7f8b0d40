#include "tests/bench/gpu_matmul_figures.h"

#include <algorithm>
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
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/ptx_run.h"
#include "tests/gpu/ptx/machine.h"

namespace outboard::bench {
namespace {

using test::LoadAt;
using test::Range;
using test::RowMajor;

constexpr char kArch[] = "sm_90a";
constexpr int kMultiprocessors = 132;  // an H100's
// What the machine runs: the tile of a product of 8,192, fewer of them.
constexpr int64_t kSide = 256, kSteps = 4096;

absl::StatusOr<CompiledKernel> Compiled(const ProductKernel& product,
                                        const codegen::MmaTile& tile) {
  Graph g;
  CompileOptions options{.target = CudaTarget(kArch, kMultiprocessors)};
  options.opts = {{codegen::OptKind::kMma, 2, codegen::MmaAmount(tile)}};
  return CompileKernel(MakeProductKernel(g, product), options);
}

// That we choose without warpgroups.
absl::StatusOr<codegen::MmaTile> TileOf(const ProductKernel& product) {
  Graph g;
  OB_ASSIGN_OR_RETURN(const codegen::LoopNest kernel,
                      codegen::AnalyzeKernel(MakeProductKernel(g, product)));
  OB_ASSIGN_OR_RETURN(const auto plan, codegen::PlanMma(kernel, CudaTarget(kArch, kMultiprocessors),
                                                        /*opts=*/nullptr));
  if (!plan) return absl::InternalError("a large product is not left to matrix units");
  return plan->tile;
}

// Two numbers of a few bits each, so that every sum is exact.
double ElementOf(int64_t row, int64_t column) {
  return static_cast<double>((row * 7 + column * 3) % 9 - 4) / 4;
}

// Runs the kernel; `buffers` by slot. Returns what the machine counts.
absl::StatusOr<ptx::Counters> Launch(const CompiledKernel& kernel,
                                     std::vector<std::string>& buffers) {
  ptx::DeviceMemory memory;
  ptx::Machine machine(&memory);
  OB_ASSIGN_OR_RETURN(const auto module, machine.Load(kernel.object));
  ptx::LaunchConfig config;
  config.grid[0] = static_cast<uint32_t>(kernel.blocks[0]);
  config.block[0] = static_cast<uint32_t>(kernel.threads[0]);
  config.shared_bytes = test::SharedBytesOfLaunch(kernel);
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
  return machine.counters();
}

absl::Status RunOnMachine(const codegen::MmaTile& tile, GpuMatmulFigures& figures) {
  OB_ASSIGN_OR_RETURN(const CompiledKernel kernel,
                      Compiled({.side = kSide, .steps = kSteps}, tile));
  std::vector<std::string> buffers = {std::string(kSide * kSide * 2, '\0'),
                                      std::string(kSide * kSteps * 2, '\0'),
                                      std::string(kSide * kSteps * 2, '\0')};
  for (int64_t row = 0; row < kSide; ++row)
    for (int64_t k = 0; k < kSteps; ++k) {
      StoreFloat(DType::kBF16, ElementOf(row, k), buffers[1].data() + 2 * (row * kSteps + k));
      StoreFloat(DType::kBF16, ElementOf(k, row), buffers[2].data() + 2 * (k * kSide + row));
    }
  OB_ASSIGN_OR_RETURN(const ptx::Counters counters, Launch(kernel, buffers));
  for (int64_t row = 0; row < kSide; row += 37)
    for (int64_t column = 0; column < kSide; column += 29) {
      double sum = 0;
      for (int64_t k = 0; k < kSteps; ++k) sum += ElementOf(row, k) * ElementOf(k, column);
      const double got = LoadFloat(DType::kBF16, buffers[0].data() + 2 * (row * kSide + column));
      if (got != RoundTo(DType::kBF16, sum))
        return absl::InternalError(
            absl::StrCat("row ", row, " column ", column, " is ", got, ", not ", sum));
    }
  figures.bank_ways = static_cast<double>(counters.shared_wavefronts) /
                      static_cast<double>(counters.shared_accesses);
  const double blocks = static_cast<double>(kernel.blocks[0]);
  const double least =
      (blocks * static_cast<double>((tile.rows + tile.columns) * kSteps) + kSide * kSide) * 2 / 32;
  figures.sectors_ratio = static_cast<double>(counters.global_sectors) / least;
  return absl::OkStatus();
}

// y[b,h,w,oc] = sum x[b,h+kh-1,w+kw-1,ic] * w[oc,kh,kw,ic] with zeros around x, of bf16.
const UOp* Convolution(Graph& g, int64_t batch, int64_t channels, int64_t side) {
  const UOp *b = Range(g, 0, batch), *oh = Range(g, 1, side), *ow = Range(g, 2, side),
            *oc = Range(g, 3, channels);
  const UOp *kh = test::ReduceRange(g, 4, 3), *kw = test::ReduceRange(g, 5, 3),
            *ic = test::ReduceRange(g, 6, channels);
  const UOp *h = Add(g, Add(g, oh, kh), ConstIndex(g, -1)),
            *w = Add(g, Add(g, ow, kw), ConstIndex(g, -1));
  const UOp* const x = test::GatedLoadAt(
      g, 1, DType::kBF16, batch * side * side * channels,
      RowMajor(g, {b, h, w, ic}, {batch, side, side, channels}),
      Alu(g, Op::kAnd, test::Within(g, h, side), test::Within(g, w, side)),
      ConstFloat(g, DType::kBF16, 0));
  const UOp* const weight = LoadAt(g, 2, DType::kBF16, channels * 9 * channels,
                                   RowMajor(g, {oc, kh, kw, ic}, {channels, 3, 3, channels}));
  const UOp* const sum = test::Fold(
      g, Op::kAdd, Mul(g, Cast(g, x, DType::kF32), Cast(g, weight, DType::kF32)), {kh, kw, ic});
  return Sink(g, {test::StoreAt(g, 0, batch * side * side * channels,
                                RowMajor(g, {b, oh, ow, oc}, {batch, side, side, channels}),
                                Cast(g, sum, DType::kBF16))});
}

absl::StatusOr<std::optional<double>> PerHmma(const std::string& ptx) {
  const std::string ptxas = test::FindPtxas(), nvdisasm = test::FindNvdisasm();
  if (ptxas.empty() || nvdisasm.empty()) return std::nullopt;
  OB_ASSIGN_OR_RETURN(const MachineCode code, MachineCodeOf(ptxas, nvdisasm, ptx, kArch));
  const std::vector<CodeLoop> loops = LoopsWith("HMMA", code.listing);
  const auto main_loop =
      std::max_element(loops.begin(), loops.end(), [](const CodeLoop& a, const CodeLoop& b) {
        return a.products < b.products;
      });
  if (main_loop == loops.end()) return absl::InternalError("no loop of matrix instructions");
  return main_loop->PerProduct();
}

// In the heuristic's tile. gpu_conv_figures.h has its code.
absl::Status MeasureConvolution(GpuMatmulFigures& figures) {
  constexpr int64_t kBatch = 2, kChannels = 64, kImage = 32;
  const Target target = CudaTarget(kArch, kMultiprocessors);
  Graph g;
  const UOp* const sink = Convolution(g, kBatch, kChannels, kImage);
  OB_ASSIGN_OR_RETURN(const codegen::LoopNest nest, codegen::AnalyzeKernel(sink));
  OB_ASSIGN_OR_RETURN(const auto plan, codegen::PlanMma(nest, target, /*opts=*/nullptr));
  if (!plan) return absl::InternalError("a convolution is not left to matrix units");
  const codegen::MmaTile& tile = plan->tile;
  CompileOptions options{.target = target};
  options.opts = {{codegen::OptKind::kMma, nest.groups[0].ranges[0], codegen::MmaAmount(tile)}};
  OB_ASSIGN_OR_RETURN(const CompiledKernel small, CompileKernel(sink, options));
  constexpr int64_t kPixels = kBatch * kImage * kImage, kConvSteps = 9 * kChannels;
  std::vector<std::string> buffers = {std::string(kPixels * kChannels * 2, '\0'),
                                      std::string(kPixels * kChannels * 2, '\0'),
                                      std::string(kChannels * kConvSteps * 2, '\0')};
  OB_ASSIGN_OR_RETURN(const ptx::Counters counters, Launch(small, buffers));
  figures.conv_bank_ways = static_cast<double>(counters.shared_wavefronts) /
                           static_cast<double>(counters.shared_accesses);
  const double least = (static_cast<double>(small.blocks[0]) *
                            static_cast<double>((tile.rows + tile.columns) * kConvSteps) +
                        kPixels * kChannels) *
                       2 / 32;
  figures.conv_sectors_ratio = static_cast<double>(counters.global_sectors) / least;
  return absl::OkStatus();
}

// Of each layout of operands of that type.
absl::Status MeasureCode(DType dtype, std::optional<double>& most, GpuMatmulFigures& figures) {
  const std::string ptxas = test::FindPtxas();
  for (const bool a : {false, true})
    for (const bool b : {false, true}) {
      const ProductKernel product{.dtype = dtype, .a_across = a, .b_across = b};
      OB_ASSIGN_OR_RETURN(const codegen::MmaTile tile, TileOf(product));
      const auto begin = std::chrono::steady_clock::now();
      OB_ASSIGN_OR_RETURN(const CompiledKernel kernel, Compiled(product, tile));
      figures.compile_ms = std::max(
          figures.compile_ms,
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
              .count());
      if (ptxas.empty()) continue;
      OB_ASSIGN_OR_RETURN(const int64_t bytes, test::StackBytesOf(ptxas, kernel.object, kArch));
      figures.spill_bytes = figures.spill_bytes.value_or(0) + bytes;
      OB_ASSIGN_OR_RETURN(const std::optional<double> per_hmma, PerHmma(kernel.object));
      if (per_hmma) most = std::max(most.value_or(0), *per_hmma);
    }
  return absl::OkStatus();
}

}  // namespace

const UOp* MakeProductKernel(Graph& g, const ProductKernel& kernel) {
  const int64_t side = kernel.side, steps = kernel.steps;
  const UOp *m = Range(g, 0, side), *n = Range(g, 1, side), *k = test::ReduceRange(g, 2, steps);
  const auto factor = [&](int64_t slot, const UOp* row, const UOp* column, int64_t rows,
                          int64_t columns) {
    const UOp* const x =
        LoadAt(g, slot, kernel.dtype, rows * columns, RowMajor(g, {row, column}, {rows, columns}));
    return kernel.dtype == DType::kF32 ? x : Cast(g, x, DType::kF32);
  };
  const UOp* const a =
      kernel.a_across ? factor(1, k, m, steps, side) : factor(1, m, k, side, steps);
  const UOp* const b =
      kernel.b_across ? factor(2, n, k, side, steps) : factor(2, k, n, steps, side);
  const UOp* const sum = test::Fold(g, Op::kAdd, Mul(g, a, b), {k});
  return Sink(g, {test::StoreAt(g, 0, side * side, RowMajor(g, {m, n}, {side, side}),
                                kernel.dtype == DType::kF32 ? sum : Cast(g, sum, kernel.dtype))});
}

absl::StatusOr<GpuMatmulFigures> MeasureGpuMatmul() {
  GpuMatmulFigures figures;
  OB_RETURN_IF_ERROR(MeasureCode(DType::kBF16, figures.instructions_per_hmma, figures));
  OB_RETURN_IF_ERROR(MeasureCode(DType::kF32, figures.instructions_per_hmma_f32, figures));
  OB_ASSIGN_OR_RETURN(const codegen::MmaTile tile, TileOf({}));
  OB_RETURN_IF_ERROR(RunOnMachine(tile, figures));
  OB_RETURN_IF_ERROR(MeasureConvolution(figures));
  return figures;
}

}  // namespace outboard::bench
