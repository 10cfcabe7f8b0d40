#include "tests/bench/gpu_figures.h"

#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/devices.h"
#include "tests/bench/gpu_amd_figures.h"
#include "tests/bench/gpu_device_figures.h"
#include "tests/bench/gpu_kernel_figures.h"
#include "tests/bench/gpu_memory_figures.h"
#include "tests/bench/gpu_program_figures.h"
#include "tests/bench/gpu_shape_figures.h"
#include "tests/bench/gpu_test_figures.h"
#include "tests/bench/report.h"
#include "tests/bench/torch_peer.h"

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

// Seconds of PyTorch on the GPU, by name; empty: there is none that could.
std::map<std::string, double> TorchSeconds() {
  std::map<std::string, double> seconds;
  const std::string command =
      absl::StrCat(Torch().python, " ", OUTBOARD_BENCH_SOURCES, "/torch_gpu.py 2>/dev/null");
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return seconds;
  char name[64];
  double value = 0;
  while (std::fscanf(pipe, "%63s %lf", name, &value) == 2) seconds[name] = value;
  pclose(pipe);
  return seconds;
}

constexpr char kNoBeam[] = "_nobeam";

// Returns the names of what it reports.
std::set<std::string> MeasureDevice() {
  std::set<std::string> reported;
  auto device = runtime::MakeDevice(std::string(runtime::kCuda), {});
  absl::StatusOr<DeviceMeasured> measured = absl::Status(device.status());
  if (device.ok()) measured = MeasureGpuDevice(**device, {});
  if (!measured.ok()) {
    ReportSkipped("cuda_device", std::string(measured.status().message()));
    return reported;
  }
  const std::string name = (*device)->properties().name;
  const auto shapes = MeasureModelShapes(**device, /*repeats=*/20, /*divisor=*/1);
  if (!shapes.ok()) ReportSkipped("cuda_model_shapes", std::string(shapes.status().message()));
  auto programs = MeasureGpuPrograms(**device, /*repeats=*/20, /*divisor=*/1);
  if (!programs.ok()) {
    ReportSkipped("cuda_programs", std::string(programs.status().message()));
    programs = DeviceMeasured();
  }
  for (const DeviceMeasured* const part : {&*measured, &*programs})
    for (const DeviceFigure& figure : part->figures) {
      Report(figure.name, figure.value, figure.unit, "", absl::StrCat(name, "; ", figure.note));
      reported.insert(figure.name);
    }
  device->reset();  // PyTorch gets the memory
  const std::map<std::string, double> torch = TorchSeconds();
  for (const DeviceTimes& time : measured->times) {
    const bool searched = !absl::EndsWith(time.name, kNoBeam);
    const std::string of_torch(absl::StripSuffix(time.name, kNoBeam));
    const auto theirs = torch.find(of_torch);
    if (theirs == torch.end()) continue;
    const std::string figure =
        absl::StartsWith(time.name, "matmul_")
            ? absl::StrCat("cuda_", of_torch, "_8192_vs_torch", searched ? "" : kNoBeam)
            : absl::StrCat("cuda_", of_torch, "_vs_torch_compile");
    Report(figure, theirs->second / time.seconds, "ratio",
           absl::StrCat("ours ", time.seconds * 1e3, " ms, PyTorch ", theirs->second * 1e3, " ms"),
           absl::StrCat(name, searched ? "; ours after BEAM=4" : "; ours without BEAM"));
    reported.insert(figure);
  }
  for (const auto& [figure, prefix] :
       {std::pair("cuda_matmul_shapes_vs_torch", "matmul_shape_"),
        {"cuda_attention_forward_vs_torch", "attention_forward_"},
        {"cuda_attention_backward_vs_torch", "attention_backward_"}}) {
    const double ratio = shapes.ok() ? MeanRatio(*shapes, torch, prefix) : 0;
    if (ratio == 0) continue;
    Report(figure, ratio, "ratio", "", absl::StrCat(name, "; geometric mean, ours without BEAM"));
    reported.insert(figure);
  }
  for (const auto& [figure, prefix] : {std::pair("cuda_mnist_step_vs_torch", "mnist_step"),
                                       {"cuda_conv_resnet50_vs_torch", "conv_"},
                                       {"cuda_decode_1b5_vs_torch_compile", "decode_1b5"}}) {
    const double ratio = MeanRatio(programs->times, torch, prefix);
    if (ratio == 0) continue;
    Report(figure, ratio, "ratio", "",
           absl::StrCat(name, "; kernels alone, ours without BEAM, PyTorch's by torch.compile"));
    reported.insert(figure);
  }
  return reported;
}

void DeviceFigures() {
  const absl::Status there = runtime::CheckDeviceKind(std::string(runtime::kCuda));
  std::set<std::string> reported;
  if (there.ok()) reported = MeasureDevice();
  for (const char* const figure : kOnADevice)
    if (!reported.contains(figure))
      ReportSkipped(figure, there.ok() ? "this program has no measurement of it, or no PyTorch to "
                                         "compare with"
                                       : "no GPU: it takes an H100 or H200");
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
