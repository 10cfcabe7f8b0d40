#include "tests/bench/gpu_groups.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/devices.h"
#include "tests/bench/gpu_conformance_figures.h"
#include "tests/bench/gpu_device_figures.h"
#include "tests/bench/gpu_program_figures.h"
#include "tests/bench/gpu_service_figures.h"
#include "tests/bench/gpu_shape_figures.h"
#include "tests/bench/gpu_step_figures.h"
#include "tests/bench/gpu_test_figures.h"
#include "tests/bench/report.h"
#include "tests/bench/torch_peer.h"

namespace outboard::bench {
namespace {

constexpr int kRepeats = 20;
constexpr int kGptSteps = 10;
// Of PyTorch in one group: ours take less, and both have to end within ten minutes.
constexpr int kTorchSeconds = 420;

using Seconds = std::map<std::string, double>;

// Seconds of PyTorch on the GPU for a part of torch_gpu.py, by name; empty: there is none that
// could. What it has printed when its time is over counts.
Seconds TorchSeconds(const std::string& part) {
  Seconds seconds;
  const std::string command = absl::StrCat("timeout ", kTorchSeconds, " ", TorchPython(), " ",
                                           BenchSources(), "/torch_gpu.py ", part, " 2>/dev/null");
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return seconds;
  char name[64];
  double value = 0;
  while (std::fscanf(pipe, "%63s %lf", name, &value) == 2) seconds[name] = value;
  pclose(pipe);
  return seconds;
}

// The figures of one group: those that were reported, so that the others can be listed.
class Group {
 public:
  explicit Group(std::vector<std::string> names) : names_(std::move(names)) {}
  // Lists what was not reported.
  ~Group() {
    for (const std::string& name : names_)
      if (!reported_.contains(name)) ReportSkipped(name, why_);
  }

  // False, and everything is skipped, where there is no GPU.
  bool HasDevice() {
    const absl::Status there = runtime::CheckDeviceKind(std::string(runtime::kCuda));
    if (!there.ok()) why_ = "no GPU: it takes an H100 or H200";
    return there.ok();
  }
  // Its own process has the device until the pointer goes; null and a reason where it cannot.
  std::unique_ptr<runtime::Device> Open() {
    if (!HasDevice()) return nullptr;
    auto device = runtime::MakeDevice(std::string(runtime::kCuda), {});
    if (!device.ok()) {
      Failed(device.status());
      return nullptr;
    }
    device_ = (*device)->properties();
    return *std::move(device);
  }
  const runtime::DeviceProperties& properties() const { return device_; }

  void Failed(const absl::Status& status) { why_ = std::string(status.message()); }
  void Lacks(const std::string& why) { why_ = why; }

  void Add(const std::string& figure, double value, const std::string& unit,
           const std::string& peer, const std::string& note) {
    Report(figure, value, unit, peer, absl::StrCat(device_.name, "; ", note));
    reported_.insert(figure);
  }
  void Add(const std::vector<DeviceFigure>& figures) {
    for (const DeviceFigure& figure : figures)
      Add(figure.name, figure.value, figure.unit, "", figure.note);
  }
  // PyTorch's seconds by ours, where there are PyTorch's.
  void AddRatio(const std::string& figure, double ours, const Seconds& torch,
                const std::string& of_torch, const std::string& note) {
    const auto theirs = torch.find(of_torch);
    if (theirs == torch.end()) return Lacks(kNoPeer);
    Add(figure, theirs->second / ours, "ratio",
        absl::StrCat("ours ", ours * 1e3, " ms, PyTorch ", theirs->second * 1e3, " ms"), note);
  }
  void AddMean(const std::string& figure, const std::vector<DeviceTimes>& ours,
               const Seconds& torch, const std::string& prefix, const std::string& note) {
    const double ratio = MeanRatio(ours, torch, prefix);
    if (ratio == 0) return Lacks(kNoPeer);
    Add(figure, ratio, "ratio", "", note);
  }

 private:
  static constexpr char kNoPeer[] = "no PyTorch that uses the GPU to compare with";

  const std::vector<std::string> names_;
  std::set<std::string> reported_;
  std::string why_ = "not measured";
  runtime::DeviceProperties device_;
};

constexpr char kNoBeam[] = "_nobeam";

}  // namespace

void GpuDeviceGroup() {
  Group group(
      {"cuda_scrub_s", "cuda_upload_gb_per_s", "cuda_park_gb_per_s", "cuda_snapshot_slowdown",
       "cuda_stream_ratio_elementwise", "cuda_stream_ratio_reduce", "cuda_stream_ratio_softmax",
       "cuda_stream_ratio_layer_norm", "cuda_stream_ratio_adamw", "cuda_graph_us_per_kernel",
       "cuda_host_us_per_step", "cuda_beam_matmul_8192_s", "cuda_matmul_bf16_8192_vs_torch",
       "cuda_matmul_fp32_8192_vs_torch_nobeam", "cuda_matmul_fp8_8192_vs_torch_nobeam"});
  auto device = group.Open();
  if (device == nullptr) return;
  const auto measured = MeasureGpuDevice(*device, {});
  if (!measured.ok()) return group.Failed(measured.status());
  group.Add(measured->figures);
  device.reset();  // PyTorch gets the memory
  const Seconds torch = TorchSeconds("device");
  for (const DeviceTimes& time : measured->times) {
    const bool searched = !absl::EndsWith(time.name, kNoBeam);
    const std::string of_torch(absl::StripSuffix(time.name, kNoBeam));
    const std::string figure =
        absl::StartsWith(time.name, "matmul_")
            ? absl::StrCat("cuda_", of_torch, "_8192_vs_torch", searched ? "" : kNoBeam)
            : absl::StrCat("cuda_", of_torch, "_vs_torch_compile");
    group.AddRatio(figure, time.seconds, torch, of_torch,
                   searched ? "ours after BEAM=4" : "ours without BEAM");
  }
}

void GpuShapesGroup() {
  Group group({"cuda_matmul_shapes_vs_torch", "cuda_attention_forward_vs_torch",
               "cuda_attention_backward_vs_torch"});
  auto device = group.Open();
  if (device == nullptr) return;
  const auto times = MeasureModelShapes(*device, kRepeats, /*divisor=*/1);
  if (!times.ok()) return group.Failed(times.status());
  device.reset();
  const Seconds torch = TorchSeconds("shapes");
  constexpr char kNote[] = "geometric mean, ours without BEAM";
  group.AddMean("cuda_matmul_shapes_vs_torch", *times, torch, "matmul_shape_", kNote);
  group.AddMean("cuda_attention_forward_vs_torch", *times, torch, "attention_forward_", kNote);
  group.AddMean("cuda_attention_backward_vs_torch", *times, torch, "attention_backward_", kNote);
}

void GpuProgramsGroup() {
  Group group({"cuda_mnist_step_vs_torch", "cuda_mnist_step_vs_torch_eager",
               "cuda_conv_resnet50_vs_torch", "cuda_decode_1b5_of_bound",
               "cuda_decode_1b5_vs_torch_compile"});
  auto device = group.Open();
  if (device == nullptr) return;
  const auto measured = MeasureGpuPrograms(*device, kRepeats, /*divisor=*/1);
  if (!measured.ok()) return group.Failed(measured.status());
  group.Add(measured->figures);
  device.reset();
  const Seconds torch = TorchSeconds("programs");
  constexpr char kCompiled[] = "kernels alone, ours without BEAM, PyTorch's by torch.compile";
  group.AddMean("cuda_mnist_step_vs_torch", measured->times, torch, "mnist_step", kCompiled);
  group.AddMean("cuda_conv_resnet50_vs_torch", measured->times, torch, "conv_",
                "kernels alone, ours without BEAM, PyTorch's by cuDNN's own search");
  group.AddMean("cuda_decode_1b5_vs_torch_compile", measured->times, torch, "decode_1b5",
                kCompiled);
  for (const DeviceTimes& time : measured->times)
    if (time.name == "mnist_step")
      group.AddRatio("cuda_mnist_step_vs_torch_eager", time.seconds, torch, "mnist_step_eager",
                     "kernels alone, ours without BEAM");
}

void GpuStepsGroup() {
  Group group({"cuda_gpt2_124m_step_vs_torch_compile", "cuda_gpt2_124m_step_vs_torch_eager",
               "cuda_gpt2_124m_mfu"});
  if (group.Open() == nullptr) return;
  const std::vector<GptStep> steps = Gpt2Steps();
  const auto seconds = MeasureGptStep(steps[0], kGptSteps);
  if (seconds.ok()) {
    const Seconds torch = TorchSeconds("steps");
    for (const std::string how : {"compile", "eager"})
      group.AddRatio(absl::StrCat("cuda_gpt2_124m_step_vs_torch_", how), *seconds, torch,
                     absl::StrCat("gpt2_step_", how),
                     "8 x 1,024 tokens, bf16, in one process, ours without BEAM");
  } else {
    group.Failed(seconds.status());
  }
  const double peak = PeakBf16Flops(group.properties());
  if (peak == 0)
    return group.Lacks(absl::StrCat("the peak of ", group.properties().name, " is not known"));
  const auto large = MeasureGptStep(steps[1], kGptSteps);
  if (!large.ok()) return group.Failed(large.status());
  group.Add("cuda_gpt2_124m_mfu", ModelFlops(steps[1]) / *large / peak, "ratio", "",
            absl::StrCat("32 x 1,024 tokens in ", *large * 1e3, " ms, bf16, without BEAM, of ",
                         peak / 1e12, " TFLOP/s; at least 0.40 is wanted"));
}

void GpuServiceGroup() {
  Group group({"cuda_step_extra_us", "cuda_first_step_s_mnist_cold", "cuda_first_step_s_mnist_warm",
               "cuda_first_step_s_gpt2_cold", "cuda_first_step_s_gpt2_warm"});
  if (group.Open() == nullptr) return;
  const auto figures = MeasureGpuService({});
  if (!figures.ok()) return group.Failed(figures.status());
  group.Add(*figures);
}

void GpuTestsGroup() {
  Group group({"cuda_device_tests_ratio", "cuda_emulator_conformance"});
  if (group.Open() == nullptr) return;  // and leaves it to the tests
  const TestsOnDevice tests = RunTestsOnDevice();
  if (tests.ran > 0)
    group.Add(
        "cuda_device_tests_ratio",
        static_cast<double>(tests.passed) / static_cast<double>(tests.ran), "", "",
        absl::StrCat(tests.ran, " tests; failed: ", tests.failed.empty() ? "none" : tests.failed));
  else
    group.Lacks("there are no tests in this build (OUTBOARD_TESTS)");
  auto device = group.Open();
  if (device == nullptr) return;
  if (device->properties().compute_capability != 90)
    return group.Lacks("the forms of instructions are those of sm_90a");
  auto conformance = CompareForms(*device, ptx::InstructionForms(), /*seed=*/1);
  if (!conformance.ok()) return group.Failed(conformance.status());
  const auto products = CompareProducts(*device, test::HopperCases());
  if (!products.ok()) return group.Failed(products.status());
  conformance->compared += products->compared;
  conformance->differences.insert(conformance->differences.end(), products->differences.begin(),
                                  products->differences.end());
  for (const std::string& difference : conformance->differences)
    std::fprintf(stderr, "conformance: %s\n", difference.c_str());
  group.Add("cuda_emulator_conformance", conformance->ratio(), "", "",
            absl::StrCat(conformance->compared, " forms of instructions and products, ",
                         conformance->differences.size(), " differ"));
}

}  // namespace outboard::bench
