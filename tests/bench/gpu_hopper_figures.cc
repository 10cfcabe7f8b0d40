#include "tests/bench/gpu_hopper_figures.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "base/check.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/operands/mma_tile.h"
#include "compiler/program/hopper/plan.h"
#include "compiler/render/ptx/ptx_renderer.h"
#include "tests/bench/gpu_machine_code.h"
#include "tests/bench/gpu_matmul_figures.h"
#include "tests/compiler/hopper_run.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/ptx_run.h"
#include "tests/compiler/whole_product.h"

namespace outboard::bench {
namespace {

using program::HopperProduct;
using program::HopperTile;

constexpr char kHopperArch[] = "sm_90a";
constexpr int kSms = 132;  // an H100's
constexpr int64_t kSide = 8192;

struct HopperKernel {
  HopperProduct product;
  HopperTile tile;
  program::ProductEpilogue epilogue;
};

// max(sum + bias[column], 0).
program::ValueId BiasAndRelu(program::ProgramBuilder& b, program::SumPlace place,
                             program::ValueId sum) {
  const program::ValueId bias = b.Load(b.Buffer(DType::kF32, 3, kSide), place.column);
  const program::ValueId value = b.Alu(Op::kAdd, DType::kF32, {sum, bias});
  return b.Cast(b.Alu(Op::kMax, DType::kF32, {value, b.Const(DType::kF32, 0)}), DType::kBF16);
}

// All layouts in three tiles; clusters of two and four; sums in parts; few steps; an epilogue that
// reads; results of f32; TF32, f32 by three products, and 8-bit floats.
std::vector<HopperKernel> Kernels() {
  std::vector<HopperKernel> kernels;
  for (const int64_t columns : {128, 192, 256})
    for (const bool a : {false, true})
      for (const bool b : {false, true}) {
        const HopperProduct product{
            .m = kSide, .n = kSide, .k = kSide, .a_by_columns = a, .b_by_columns = b};
        kernels.push_back({product, {.columns = columns, .persistent_blocks = kSms}, nullptr});
        if (columns == 192 && !b) continue;  // half of it is no multiple of a box
        kernels.push_back(
            {product, {.columns = columns, .persistent_blocks = kSms, .cluster = 2}, nullptr});
      }
  const HopperProduct square{.m = kSide, .n = kSide, .k = kSide};
  kernels.push_back({square, {.columns = 256, .persistent_blocks = kSms, .cluster = 4}, nullptr});
  HopperProduct product = square;
  product.buffer_count = 4;
  kernels.push_back(
      {product, {.columns = 256, .persistent_blocks = kSms, .cluster = 2}, BiasAndRelu});
  product = square;
  product.c_dtype = DType::kF32;
  kernels.push_back({product, {.columns = 256, .persistent_blocks = kSms}, nullptr});
  for (const int64_t split : {2, 4}) {
    kernels.push_back({{.m = 512, .n = 512, .k = kSide}, {.split = split}, nullptr});
    kernels.push_back({{.m = 512, .n = 512, .k = kSide}, {.columns = 64, .split = split}, nullptr});
  }
  for (const int64_t k : {128, 192})
    kernels.push_back({{.m = 1024, .n = 1024, .k = k}, {.columns = 256}, nullptr});
  product = square;
  product.b_by_columns = true;
  product.dtype = DType::kF32;
  kernels.push_back(
      {product, {.columns = 256, .persistent_blocks = kSms, .cluster = 2}, nullptr});
  product.three_tf32 = true;
  kernels.push_back({product, {.columns = 64, .persistent_blocks = kSms}, nullptr});
  kernels.push_back({product, {.persistent_blocks = kSms, .cluster = 2}, nullptr});
  for (const bool a : {false, true}) {  // B across k, and both
    product.a_by_columns = a;
    product.b_by_columns = false;
    kernels.push_back({product, {.columns = 64, .persistent_blocks = kSms}, nullptr});
    kernels.push_back({product, {.persistent_blocks = kSms, .cluster = 2}, nullptr});
  }
  product.a_by_columns = false;
  product.b_by_columns = true;
  product.three_tf32 = false;
  product.dtype = DType::kF8E4M3;
  for (const int64_t cluster : {1, 2})
    kernels.push_back({product, {.persistent_blocks = kSms, .cluster = cluster}, nullptr});
  return kernels;
}

// Sides of 8,192.
absl::StatusOr<HopperTile> ChosenTile(DType dtype) {
  Graph g;
  const Target target = CudaTarget(kHopperArch, kSms);
  OB_ASSIGN_OR_RETURN(const codegen::LoopNest kernel,
                      codegen::AnalyzeKernel(MakeProductKernel(g, {.dtype = dtype})));
  OB_ASSIGN_OR_RETURN(const auto mma, codegen::PlanMma(kernel, target, /*opts=*/nullptr));
  OB_ASSIGN_OR_RETURN(const auto plan, program::PlanHopper(kernel, target, nullptr, mma));
  if (!plan) return absl::InternalError("a large product is not left to warpgroups");
  return plan->tile;
}

}  // namespace

absl::StatusOr<ProductMemory> MeasureHopperMemory(DType dtype) {
  OB_ASSIGN_OR_RETURN(const HopperTile tile, ChosenTile(dtype));
  // A tile for each block of two clusters beside each other.
  const int64_t rows = tile.cluster * tile.rows, columns = 2 * tile.columns, steps = 512;
  test::HopperCase run{.product = {.dtype = dtype,
                                   .three_tf32 = dtype == DType::kF32,
                                   .m = rows,
                                   .n = columns,
                                   .k = steps,
                                   .c_dtype = dtype},
                       .tile = tile};
  OB_ASSIGN_OR_RETURN(const program::Program program,
                      MakeHopperProduct(run.product, run.tile, run.epilogue));
  OB_ASSIGN_OR_RETURN(const auto renderer,
                      render::MakePtxRenderer(CudaTarget(kHopperArch, kSms)));
  OB_ASSIGN_OR_RETURN(const CompiledKernel kernel, renderer->Render(program, "k"));
  test::Buffers buffers = test::InputsOf(run);
  test::MachineCounts counts;
  OB_RETURN_IF_ERROR(test::RunOnPtxMachine(kernel, buffers, {}, /*seed=*/1, nullptr, &counts));
  if (const std::string wrong = test::DifferenceOf(run, buffers); !wrong.empty())
    return absl::InternalError(wrong);
  const int64_t tiles = rows / tile.rows * (columns / tile.columns);
  const int64_t elements =
      tiles * (tile.rows * steps + tile.columns * steps / tile.cluster) + rows * columns;
  const double sector_elements = 32.0 / ByteWidth(dtype);
  return ProductMemory{.bank_ways = static_cast<double>(counts.shared_wavefronts) /
                                    static_cast<double>(counts.shared_accesses),
                       .sectors_ratio = static_cast<double>(counts.global_sectors) /
                                        (static_cast<double>(elements) / sector_elements)};
}

absl::StatusOr<GpuHopperFigures> MeasureGpuHopper() {
  GpuHopperFigures figures;
  const std::string ptxas = test::FindPtxas(), nvdisasm = test::FindNvdisasm();
  OB_ASSIGN_OR_RETURN(const auto renderer,
                      render::MakePtxRenderer(CudaTarget(kHopperArch, kSms)));
  for (const HopperKernel& each : Kernels()) {
    OB_ASSIGN_OR_RETURN(const program::Program program,
                        MakeHopperProduct(each.product, each.tile, each.epilogue));
    OB_ASSIGN_OR_RETURN(const CompiledKernel kernel,
                        renderer->Render(program, "k"));
    if (ptxas.empty()) continue;
    OB_ASSIGN_OR_RETURN(const int64_t stack_bytes,
                        test::StackBytesOf(ptxas, kernel.object, kHopperArch));
    figures.spill_bytes = figures.spill_bytes.value_or(0) + stack_bytes;
    OB_ASSIGN_OR_RETURN(const MachineCode code,
                        MachineCodeOf(ptxas, nvdisasm, kernel.object, kHopperArch));
    figures.serialised =
        figures.serialised.value_or(0) + absl::StrContains(code.said, "serialized");
    figures.ignored = figures.ignored.value_or(0) + absl::StrContains(code.said, "ignored");
    std::optional<double>* const of_hgmma =
        !each.product.three_tf32 ? &figures.instructions_per_hgmma
        : each.product.a_by_columns  ? &figures.instructions_per_hgmma_f32_across
                                     : &figures.instructions_per_hgmma_f32;
    for (const auto& [product, most] :
         {std::pair("HGMMA", of_hgmma), std::pair("QGMMA", &figures.instructions_per_qgmma)}) {
      // The innermost one.
      const std::vector<CodeLoop> loops = LoopsWith(product, code.listing);
      const auto main_loop = std::min_element(
          loops.begin(), loops.end(),
          [](const CodeLoop& a, const CodeLoop& b) { return a.instructions < b.instructions; });
      if (main_loop != loops.end())
        *most = std::max(most->value_or(0), main_loop->PerProduct());
    }
  }
  return figures;
}

}  // namespace outboard::bench
