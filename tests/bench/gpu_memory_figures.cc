#include "tests/bench/gpu_memory_figures.h"

#include <string>

#include "tests/bench/gpu_attention_figures.h"
#include "tests/bench/gpu_hopper_figures.h"
#include "tests/bench/gpu_matmul_figures.h"
#include "tests/bench/gpu_sector_figures.h"
#include "tests/bench/report.h"

namespace outboard::bench {

namespace {

constexpr char kNoTools[] = "no ptxas or nvdisasm; scripts/setup --assembler fetches them";

void ProductsByWarpgroups() {
  const auto product = MeasureGpuHopper();
  if (!product.ok() || !product->instructions_per_hgmma)
    return ReportSkipped("ptx_instructions_per_hgmma",
                         product.ok() ? kNoTools : std::string(product.status().message()));
  Report("ptx_instructions_per_hgmma", *product->instructions_per_hgmma, "count", "",
         "in the main loop, the most of all products by warpgroups but of f32 and 8-bit floats; "
         "at most 16 are wanted");
  if (product->instructions_per_hgmma_f32)
    Report("ptx_instructions_per_hgmma_f32", *product->instructions_per_hgmma_f32, "count", "",
           "in the main loop of products of f32 by three of TF32; at most 18");
  if (product->instructions_per_hgmma_f32_across)
    Report("ptx_instructions_per_hgmma_f32_across", *product->instructions_per_hgmma_f32_across,
           "count", "", "the same of a left side that is stored across the steps; at most 21");
  if (product->instructions_per_qgmma)
    Report("ptx_instructions_per_qgmma", *product->instructions_per_qgmma, "count", "",
           "in the main loop of products of 8-bit floats by warpgroups; 16 of them add in f32");
  Report("ptx_wgmma_serialised", static_cast<double>(*product->serialised), "count", "",
         "of these products; 0 are wanted");
}

}  // namespace

namespace {

void Attention() {
  const auto attention = MeasureGpuAttention();
  if (!attention.ok())
    return ReportSkipped("cuda_bank_ways_attention", std::string(attention.status().message()));
  Report("cuda_bank_ways_attention", attention->bank_ways, "", "",
         "phases of an access to shared memory; 1 is wanted");
  Report("cuda_attention_causal_part", attention->causal_part, "", "",
         "of the matrix instructions, with four tiles of rows; 0.625 is the least");
  if (!attention->instructions_per_hmma_64)
    return ReportSkipped("ptx_attention_instructions_per_hmma_64", kNoTools);
  Report("ptx_attention_instructions_per_hmma_64", *attention->instructions_per_hmma_64, "count",
         "", "in the main loop, heads of 64");
  Report("ptx_attention_instructions_per_hmma_128", *attention->instructions_per_hmma_128, "count",
         "", "in the main loop, heads of 128");
  Report("ptx_attention_instructions_per_hgmma_64", *attention->instructions_per_hgmma_64, "count",
         "", "in the main loop by warpgroups, heads of 64");
  Report("ptx_attention_instructions_per_hgmma_128", *attention->instructions_per_hgmma_128,
         "count", "", "in the main loop by warpgroups, heads of 128");
}

}  // namespace

void GpuMemoryFigures() {
  ProductsByWarpgroups();
  Attention();
  constexpr char kSectors[] = "of 32 bytes, to the least; at most 1.05 are wanted";
  constexpr char kWays[] = "phases of an access to shared memory; 1 is wanted";
  if (const auto figures = GpuSectorFigures(); !figures.ok()) {
    ReportSkipped("cuda_sectors_ratio", std::string(figures.status().message()));
  } else {
    for (const SectorFigure& figure : *figures)
      Report(figure.name, figure.value, "", "",
             figure.name.find("bank") == std::string::npos ? kSectors : kWays);
  }
  const auto product = MeasureGpuMatmul();
  if (!product.ok())
    return ReportSkipped("ptx_instructions_per_hmma", std::string(product.status().message()));
  Report("cuda_sectors_ratio_matmul_bf16", product->sectors_ratio, "", "", kSectors);
  Report("cuda_bank_ways_matmul_bf16", product->bank_ways, "", "", kWays);
  Report("cuda_sectors_ratio_conv", product->conv_sectors_ratio, "", "", kSectors);
  Report("cuda_bank_ways_conv", product->conv_bank_ways, "", "", kWays);
  if (!product->instructions_per_hmma) return ReportSkipped("ptx_instructions_per_hmma", kNoTools);
  Report("ptx_instructions_per_hmma", *product->instructions_per_hmma, "count", "",
         "in the main loop of a product of bf16 matrices of 8,192; at most 3.0 are wanted");
  Report("ptx_instructions_per_hmma_conv", *product->conv_instructions_per_hmma, "count", "",
         "the same of a convolution of 64 by 64 channels, 3 x 3; at most 3.0 are wanted");
}

}  // namespace outboard::bench
