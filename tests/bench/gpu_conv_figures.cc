#include "tests/bench/gpu_conv_figures.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/operands/mma_tile.h"
#include "compiler/program/hopper/plan.h"
#include "tests/bench/gpu_machine_code.h"
#include "tests/compiler/conv_kernels.h"
#include "tests/compiler/kernel_run.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::bench {
namespace {

constexpr char kArch[] = "sm_90a";
constexpr int kMultiprocessors = 132;

using Kernel = const UOp* (test::ConvKernels::*)();

struct Way {
  const char* name;
  Kernel kernel;
  bool of_pictures = false;
  // By mma.sync; 0 rows: the one that is chosen.
  codegen::MmaTile tile = {};
};
constexpr Way kWays[] = {
    {"forward", &test::ConvKernels::Forward},
    {"input gradient", &test::ConvKernels::InputGradient},
    {"weight gradient", &test::ConvKernels::WeightGradient},
    {"first forward", &test::ConvKernels::Forward, true},
    // As of the parts in which the schedule divides its sum.
    {"first weight gradient", &test::ConvKernels::WeightGradient, true, {64, 64, 32, 2, 2, 4}}};

// A layer of ResNet-50 with 64 pictures, or a small one; and the first, of three channels.
test::ConvCase Shape(const Way& way, bool large, DType dtype) {
  if (way.of_pictures)
    return {.batch = large ? 64 : 2,
            .in = 3,
            .out = 64,
            .height = large ? 224 : 32,
            .width = large ? 224 : 32,
            .kernel = 7,
            .stride = 2,
            .padding = 3,
            .channels_last = false,
            .taps_last = true,
            .result = DType::kBF16};
  return {.batch = large ? 64 : 2,
          .in = 64,
          .out = 64,
          .height = large ? 56 : 16,
          .width = large ? 56 : 16,
          .dtype = dtype,
          .result = dtype};
}

struct Compiled {
  CompiledKernel kernel;
  double least_sectors = 0;
};

absl::StatusOr<Compiled> Compile(Graph& g, const Way& way, bool large, const ConvFigure& figure) {
  const test::ConvCase shape = Shape(way, large, figure.dtype);
  test::ConvKernels kernels(g, shape);
  const UOp* const sink = (kernels.*way.kernel)();
  OB_ASSIGN_OR_RETURN(const codegen::LoopNest nest, codegen::AnalyzeKernel(sink));
  OB_ASSIGN_OR_RETURN(const codegen::MmaProduct product, codegen::FindMmaProduct(nest));
  const Target target = CudaTarget(kArch, kMultiprocessors);
  CompileOptions options{.target = target};
  options.dump = std::getenv("DUMP") != nullptr;
  const int axis = nest.groups[0].ranges[0];
  int64_t rows = 0, columns = 0;
  if (figure.by_warpgroups) {
    const program::HopperTile tile{.columns = 64, .stages = 4};
    rows = tile.rows;
    columns = tile.columns;
    options.opts = {{codegen::OptKind::kWgmma, axis, program::WgmmaAmount(tile)}};
  } else {
    OB_ASSIGN_OR_RETURN(const auto plan, codegen::PlanMma(nest, target, /*opts=*/nullptr));
    if (!plan) return absl::InternalError("a convolution is not left to matrix units");
    const codegen::MmaTile& tile = way.tile.rows > 0 ? way.tile : plan->tile;
    rows = tile.rows;
    columns = tile.columns;
    options.opts = {{codegen::OptKind::kMma, axis, codegen::MmaAmount(tile)}};
  }
  Compiled compiled;
  OB_ASSIGN_OR_RETURN(compiled.kernel, CompileKernel(sink, options));
  const auto tiles = [](int64_t count, int64_t size) { return (count + size - 1) / size; };
  const int64_t results = product.rows.count * product.columns.count;
  compiled.least_sectors =
      static_cast<double>(tiles(product.rows.count, rows) * tiles(product.columns.count, columns) *
                              (rows + columns) * product.steps +
                          results) *
      ByteWidth(figure.dtype) / 32;
  return compiled;
}

absl::Status OnMachine(const Way& way, ConvFigure& figure) {
  Graph g;
  OB_ASSIGN_OR_RETURN(const Compiled small, Compile(g, way, /*large=*/false, figure));
  const test::ConvCase shape = Shape(way, /*large=*/false, figure.dtype);
  const auto bytes = [&](int64_t elements) {
    return std::string(static_cast<size_t>(elements * ByteWidth(figure.dtype)), '\0');
  };
  const int64_t image = shape.batch * shape.height * shape.width * shape.in,
                weights = shape.out * shape.kernel * shape.kernel * shape.in,
                result = shape.batch * shape.out_height() * shape.out_width() * shape.out;
  const bool of_image = way.kernel == &test::ConvKernels::InputGradient;
  test::Buffers buffers = {bytes(figure.of_weights ? weights
                                 : of_image        ? image
                                                   : result),
                           bytes(of_image ? result : image),
                           bytes(figure.of_weights ? result : weights)};
  test::MachineCounts counts;
  OB_RETURN_IF_ERROR(
      test::RunOnPtxMachine(small.kernel, buffers, {}, /*seed=*/1, nullptr, &counts));
  figure.bank_ways = static_cast<double>(counts.shared_wavefronts) /
                     static_cast<double>(std::max<uint64_t>(1, counts.shared_accesses));
  figure.sectors_ratio = static_cast<double>(counts.global_sectors) / small.least_sectors;
  return absl::OkStatus();
}

absl::Status ByAssembler(const Way& way, ConvFigure& figure) {
  const std::string ptxas = test::FindPtxas(), nvdisasm = test::FindNvdisasm();
  if (ptxas.empty()) return absl::OkStatus();
  Graph g;
  OB_ASSIGN_OR_RETURN(const Compiled large, Compile(g, way, /*large=*/true, figure));
  OB_ASSIGN_OR_RETURN(const test::Assembled assembled,
                      test::AssembleKernel(ptxas, large.kernel.object, kArch));
  if (std::getenv("DUMP") != nullptr) std::puts(large.kernel.object.c_str());
  figure.registers = assembled.registers;
  figure.spill_bytes = assembled.spill_bytes;
  figure.ignored = assembled.ignored;
  OB_ASSIGN_OR_RETURN(const MachineCode code,
                      MachineCodeOf(ptxas, nvdisasm, large.kernel.object, kArch));
  figure.serialised = absl::StrContains(code.said, "serialized");
  if (nvdisasm.empty()) return absl::OkStatus();
  const auto least = [](const std::vector<CodeLoop>& loops) {
    return std::min_element(loops.begin(), loops.end(), [](const CodeLoop& a, const CodeLoop& b) {
      return a.instructions < b.instructions;
    });
  };
  const std::vector<CodeLoop> products =
      LoopsWith(figure.by_warpgroups ? "HGMMA" : "HMMA", code.listing);
  if (products.empty()) return absl::InternalError("no loop of matrix instructions");
  figure.instructions_per_product = least(products)->PerProduct();
  if (!figure.by_warpgroups) return absl::OkStatus();
  // Single elements are loaded.
  const std::vector<CodeLoop> copies =
      LoopsWith(way.of_pictures ? "LDG.E.U16" : "LDGSTS", code.listing);
  if (const auto loop = least(copies); loop != copies.end())
    figure.instructions_of_gather = static_cast<double>(loop->instructions);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<ConvFigure>> MeasureGpuConvolutions() {
  std::vector<ConvFigure> figures;
  for (const Way& way : kWays)
    for (const auto& [dtype, by_warpgroups] :
         {std::pair(DType::kBF16, false), {DType::kBF16, true}, {DType::kF32, false}}) {
      if (way.of_pictures && dtype == DType::kF32) continue;  // their taps are copied one by one
      ConvFigure figure{.name = way.name,
                        .dtype = dtype,
                        .by_warpgroups = by_warpgroups,
                        .of_pictures = way.of_pictures,
                        .of_weights = way.kernel == &test::ConvKernels::WeightGradient};
      OB_RETURN_IF_ERROR(OnMachine(way, figure));
      OB_RETURN_IF_ERROR(ByAssembler(way, figure));
      figures.push_back(std::move(figure));
    }
  return figures;
}

}  // namespace outboard::bench
