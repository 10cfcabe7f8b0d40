#include "tests/bench/gpu_figures.h"

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/bench/gpu_amd_figures.h"
#include "tests/bench/gpu_kernel_figures.h"
#include "tests/bench/gpu_memory_figures.h"
#include "tests/bench/gpu_test_figures.h"
#include "tests/bench/report.h"

namespace outboard::bench {
namespace {

// What needs a device, most of it against the current PyTorch in the same run.
constexpr const char* kOnADevice[] = {
    "cuda_device_tests_ratio",
    "cuda_emulator_conformance",
    "cuda_matmul_bf16_8192_vs_torch",
    "cuda_matmul_shapes_vs_torch",
    "cuda_matmul_fp32_8192_vs_torch",
    "cuda_matmul_fp8_8192_vs_torch",
    "cuda_conv_resnet50_vs_torch",
    "cuda_stream_ratio_elementwise",
    "cuda_stream_ratio_reduce",
    "cuda_stream_ratio_softmax",
    "cuda_stream_ratio_layer_norm",
    "cuda_stream_ratio_adamw",
    "cuda_attention_forward_vs_torch",
    "cuda_attention_backward_vs_torch",
    "cuda_mnist_step_vs_torch",
    "cuda_gpt2_124m_step_vs_torch_compile",
    "cuda_gpt2_124m_mfu",
    "cuda_decode_1b5_of_bound",
    "cuda_decode_1b5_vs_torch_compile",
    "cuda_graph_us_per_kernel",
    "cuda_host_us_per_step",
    "cuda_step_extra_us",
    "cuda_first_step_s_mnist_cold",
    "cuda_first_step_s_gpt2_cold",
    "cuda_first_step_s_gpt2_warm",
    "cuda_beam_matmul_8192_s",
    "cuda_upload_gb_per_s",
    "cuda_park_gb_per_s",
    "cuda_scrub_s",
    "cuda_snapshot_slowdown",
};

// What scripts/bundle has made last.
void BundleFigure() {
  std::error_code error;
  std::uintmax_t bytes = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(OUTBOARD_BENCH_BUILD "/bundle", error))
    if (file.path().extension() == ".zst") bytes = std::max(bytes, file.file_size(error));
  if (bytes == 0) return ReportSkipped("bundle_mib", "there is no bundle; scripts/bundle makes it");
  Report("bundle_mib", static_cast<double>(bytes) / (1 << 20), "MiB", "",
         "programs and libraries for a bare Debian 12 or Ubuntu 24.04; under 64 are wanted");
}

void DeviceFigures() {
  for (const char* const figure : kOnADevice)
    ReportSkipped(figure, "no GPU: it takes an H100 or H200, and is not measured by this program");
}

// Each family of figures by name; more of them come here.
constexpr void (*kFamilies[])() = {
    GpuCompileFigures,
    GpuAssemblerFigures,
    GpuAmdFigures,
    GpuMemoryFigures,
    GpuTestFigures,
    BundleFigure,
    DeviceFigures,
};

}  // namespace

void GpuFigures() {
  for (const auto family : kFamilies) family();
}

}  // namespace outboard::bench
