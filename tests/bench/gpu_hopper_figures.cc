#include "tests/bench/gpu_hopper_figures.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "base/check.h"
#include "compiler/program/hopper/product.h"
#include "compiler/render/llvm/nvptx.h"
#include "tests/bench/gpu_machine_code.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::bench {
namespace {

using program::HopperProduct;
using program::HopperTile;

constexpr char kHopperArch[] = "sm_90a";
constexpr int kSms = 132;  // an H100's
constexpr int64_t kSide = 8192;

}  // namespace

absl::StatusOr<GpuHopperFigures> MeasureGpuHopper() {
  GpuHopperFigures figures;
  const std::string ptxas = test::FindPtxas(), nvdisasm = test::FindNvdisasm();
  OB_ASSIGN_OR_RETURN(const auto renderer,
                      render::MakeNvptxRenderer(CudaTarget(kHopperArch, kSms)));
  for (const int64_t columns : {128, 256})
    for (const bool a : {false, true})
      for (const bool b : {false, true}) {
        const HopperProduct product{
            .m = kSide, .n = kSide, .k = kSide, .a_by_columns = a, .b_by_columns = b};
        OB_ASSIGN_OR_RETURN(
            const program::Program program,
            MakeHopperProduct(product, {.columns = columns, .persistent_blocks = kSms}));
        OB_ASSIGN_OR_RETURN(const CompiledKernel kernel,
                            renderer->Render(program, "k", /*no_opt=*/false, nullptr));
        if (ptxas.empty()) continue;
        OB_ASSIGN_OR_RETURN(const int64_t spilled,
                            test::Assemble(ptxas, kernel.object, kHopperArch));
        figures.spill_bytes = figures.spill_bytes.value_or(0) + spilled;
        OB_ASSIGN_OR_RETURN(const MachineCode code,
                            MachineCodeOf(ptxas, nvdisasm, kernel.object, kHopperArch));
        figures.serialised =
            figures.serialised.value_or(0) + absl::StrContains(code.said, "serialized");
        // The innermost one.
        const std::vector<CodeLoop> loops = LoopsWith("HGMMA", code.listing);
        const auto main_loop = std::min_element(
            loops.begin(), loops.end(),
            [](const CodeLoop& a, const CodeLoop& b) { return a.instructions < b.instructions; });
        if (main_loop != loops.end())
          figures.instructions_per_hgmma =
              std::max(figures.instructions_per_hgmma.value_or(0), main_loop->PerProduct());
      }
  return figures;
}

}  // namespace outboard::bench
