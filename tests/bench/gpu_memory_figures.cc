#include "tests/bench/gpu_memory_figures.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "tests/bench/figure_list.h"
#include "tests/bench/gpu_attention_figures.h"
#include "tests/bench/gpu_code_bounds.h"
#include "tests/bench/gpu_conv_figures.h"
#include "tests/bench/gpu_hopper_figures.h"
#include "tests/bench/gpu_matmul_figures.h"
#include "tests/bench/gpu_sector_figures.h"

namespace outboard::bench {
namespace {

constexpr char kNoTools[] = "no ptxas or nvdisasm; scripts/setup --assembler fetches them";
constexpr char kSectors[] = "of 32 bytes, to the least; at most 1.05 are wanted";
constexpr char kWays[] = "phases of an access to shared memory; 1 is wanted";

// A number that takes the assembler or the disassembler.
void ReportCode(FigureList& figures, const std::string& name, const std::optional<double>& value,
                const std::string& note) {
  if (!value) return figures.Skip(name, kNoTools);
  figures.Report(name, *value, "count", "", note);
}

void ProductsByWarpgroups() {
  FigureList figures({"ptx_instructions_per_hgmma", "ptx_instructions_per_hgmma_f32",
                      "ptx_instructions_per_hgmma_f32_across", "ptx_instructions_per_qgmma",
                      "ptx_wgmma_serialised_products"});
  const auto product = MeasureGpuHopper();
  if (!product.ok()) return figures.Lacks(std::string(product.status().message()));
  ReportCode(figures, "ptx_instructions_per_hgmma", product->instructions_per_hgmma,
             absl::StrCat("in the main loop, the most of all products by warpgroups but of f32 and "
                          "8-bit floats, which have names of their own, as attention has; at most ",
                          code_bounds::kHgmma, "; 16 are wanted"));
  ReportCode(
      figures, "ptx_instructions_per_hgmma_f32", product->instructions_per_hgmma_f32,
      absl::StrCat("in the main loop of products of f32 by three of TF32, with the additions "
                   "of sums in f32; at most ",
                   code_bounds::kHgmmaOfF32));
  ReportCode(figures, "ptx_instructions_per_hgmma_f32_across",
             product->instructions_per_hgmma_f32_across,
             absl::StrCat("the same of a left side that is stored across the steps; at most ",
                          code_bounds::kHgmmaOfF32Across));
  ReportCode(figures, "ptx_instructions_per_qgmma", product->instructions_per_qgmma,
             absl::StrCat("in the main loop of products of 8-bit floats by warpgroups, 16 of which "
                          "add in f32; at most ",
                          code_bounds::kQgmma));
  if (product->serialised)
    figures.Report("ptx_wgmma_serialised_products", static_cast<double>(*product->serialised),
                   "count", "", "of these products; 0 are wanted");
  figures.Lacks(kNoTools);
}

void Attention() {
  FigureList figures({"cuda_bank_ways_attention", "cuda_attention_causal_part",
                      "ptx_attention_instructions_per_hmma_64",
                      "ptx_attention_instructions_per_hmma_128",
                      "ptx_attention_instructions_per_hgmma_64",
                      "ptx_attention_instructions_per_hgmma_128"});
  const auto attention = MeasureGpuAttention();
  if (!attention.ok()) return figures.Lacks(std::string(attention.status().message()));
  figures.Report("cuda_bank_ways_attention", attention->bank_ways, "", "",
                 absl::StrCat(kWays,
                              "; the most of forward by mma.sync and by warpgroups and of both "
                              "with gradients, heads of 64 and 128: ",
                              attention->bank_ways_of));
  figures.Report("cuda_attention_causal_part", attention->causal_part, "", "",
                 "of the matrix instructions, with four tiles of rows; 0.625 is the least");
  ReportCode(
      figures, "ptx_attention_instructions_per_hmma_64", attention->instructions_per_hmma_64,
      absl::StrCat("in the main loop, heads of 64; at most ", code_bounds::kAttentionHmma64));
  ReportCode(
      figures, "ptx_attention_instructions_per_hmma_128", attention->instructions_per_hmma_128,
      absl::StrCat("in the main loop, heads of 128; at most ", code_bounds::kAttentionHmma128));
  ReportCode(figures, "ptx_attention_instructions_per_hgmma_64",
             attention->instructions_per_hgmma_64,
             absl::StrCat("in the main loop by warpgroups, heads of 64; at most ",
                          code_bounds::kAttentionHgmma64));
  ReportCode(figures, "ptx_attention_instructions_per_hgmma_128",
             attention->instructions_per_hgmma_128,
             absl::StrCat("in the main loop by warpgroups, heads of 128; at most ",
                          code_bounds::kAttentionHgmma128));
}

void Sectors() {
  FigureList figures({"cuda_sectors_ratio_stream", "cuda_sectors_ratio_softmax",
                      "cuda_sectors_ratio_layer_norm", "cuda_sectors_ratio_long_softmax",
                      "cuda_sectors_ratio_vocabulary_softmax", "cuda_sectors_ratio_transpose",
                      "cuda_sectors_ratio_matmul", "cuda_bank_ways_matmul"});
  const auto measured = GpuSectorFigures();
  if (!measured.ok()) return figures.Lacks(std::string(measured.status().message()));
  for (const SectorFigure& figure : *measured)
    figures.Report(figure.name, figure.value, "", "",
                   figure.name.find("bank") == std::string::npos ? kSectors : kWays);
}

void Products() {
  FigureList figures({"cuda_sectors_ratio_matmul_bf16", "cuda_bank_ways_matmul_bf16",
                      "cuda_sectors_ratio_conv", "cuda_bank_ways_conv", "ptx_instructions_per_hmma",
                      "ptx_instructions_per_hmma_f32"});
  const auto product = MeasureGpuMatmul();
  if (!product.ok()) return figures.Lacks(std::string(product.status().message()));
  figures.Report("cuda_sectors_ratio_matmul_bf16", product->sectors_ratio, "", "", kSectors);
  figures.Report("cuda_bank_ways_matmul_bf16", product->bank_ways, "", "", kWays);
  figures.Report("cuda_sectors_ratio_conv", product->conv_sectors_ratio, "", "", kSectors);
  figures.Report("cuda_bank_ways_conv", product->conv_bank_ways, "", "", kWays);
  ReportCode(figures, "ptx_instructions_per_hmma", product->instructions_per_hmma,
             absl::StrCat("in the main loop of a product of bf16 matrices of 8,192, the most of "
                          "four layouts of operands; at most ",
                          code_bounds::kHmma, " are wanted"));
  ReportCode(figures, "ptx_instructions_per_hmma_f32", product->instructions_per_hmma_f32,
             absl::StrCat("the same of f32 by three products of TF32, which takes both operands "
                          "apart; at most ",
                          code_bounds::kHmmaOfF32));
}

void SectorsOfWarpgroups() {
  FigureList figures({"cuda_sectors_ratio_matmul_wgmma_bf16", "cuda_bank_ways_matmul_wgmma_bf16",
                      "cuda_sectors_ratio_matmul_wgmma_f32", "cuda_bank_ways_matmul_wgmma_f32"});
  for (const auto& [dtype, type, ways] :
       {std::tuple(DType::kBF16, "bf16", code_bounds::kWgmmaBankWays),
        {DType::kF32, "f32", code_bounds::kWgmmaBankWaysOfF32}}) {
    const auto memory = MeasureHopperMemory(dtype);
    if (!memory.ok()) return figures.Lacks(std::string(memory.status().message()));
    figures.Report(absl::StrCat("cuda_sectors_ratio_matmul_wgmma_", type), memory->sectors_ratio,
                   "", "", kSectors);
    figures.Report(absl::StrCat("cuda_bank_ways_matmul_wgmma_", type), memory->bank_ways, "", "",
                   absl::StrCat("phases of an access to shared memory by ordinary instructions; at "
                                "most ",
                                ways));
  }
}

bool IsByMmaSync(const ConvFigure& way) { return !way.by_warpgroups && !way.of_pictures; }

// By mma.sync, and by warpgroups, which sm_90a takes where that is faster: a loop of its own
// gathers then.
void Convolutions() {
  FigureList figures({"ptx_instructions_per_hmma_conv", "ptx_instructions_per_hmma_conv_f32",
                      "ptx_instructions_per_hmma_conv_weights",
                      "ptx_instructions_per_hmma_conv_pictures",
                      "ptx_instructions_per_hgmma_conv"});
  const auto ways = MeasureGpuConvolutions();
  if (!ways.ok()) return figures.Lacks(std::string(ways.status().message()));
  const auto report = [&](const std::string& name, const std::string& of, double most,
                          const std::function<bool(const ConvFigure& way)>& counts) {
    std::optional<double> value;
    for (const ConvFigure& way : *ways)
      if (counts(way) && way.instructions_per_product)
        value = std::max(value.value_or(0), *way.instructions_per_product);
    ReportCode(figures, name, value,
               absl::StrCat("in the main loop of a convolution of ", of, "; at most ", most));
  };
  report("ptx_instructions_per_hmma_conv",
         "64 by 64 channels, 3 x 3, the most of forward and the input's gradient",
         code_bounds::kHmmaOfConvolutions, [](const ConvFigure& way) {
           return IsByMmaSync(way) && !way.of_weights && way.dtype == DType::kBF16;
         });
  report("ptx_instructions_per_hmma_conv_f32", "the same of f32 by three products of TF32",
         code_bounds::kHmmaOfConvolutionsOfF32, [](const ConvFigure& way) {
           return IsByMmaSync(way) && !way.of_weights && way.dtype == DType::kF32;
         });
  report("ptx_instructions_per_hmma_conv_weights",
         "64 by 64 channels, the gradient of the weights, which are a small tile; the most of bf16 "
         "and f32",
         code_bounds::kHmmaOfWeightGradients,
         [](const ConvFigure& way) { return IsByMmaSync(way) && way.of_weights; });
  report("ptx_instructions_per_hmma_conv_pictures",
         "3 by 64 channels, 7 x 7, the more of forward and the gradient of the weights",
         code_bounds::kHmmaOfPictures,
         [](const ConvFigure& way) { return !way.by_warpgroups && way.of_pictures; });
  report("ptx_instructions_per_hgmma_conv",
         "64 by 64 channels by warpgroups, the most of forward and both gradients",
         code_bounds::kHgmmaOfConvolutions,
         [](const ConvFigure& way) { return way.by_warpgroups && !way.of_pictures; });
}

}  // namespace

void GpuMemoryFigures() {
  ProductsByWarpgroups();
  Attention();
  Sectors();
  Products();
  SectorsOfWarpgroups();
  Convolutions();
}

}  // namespace outboard::bench
