#include "tests/bench/gpu_groups.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/devices.h"
#include "tests/bench/figure_list.h"
#include "tests/bench/gpu_conformance_figures.h"
#include "tests/bench/gpu_decode_figures.h"
#include "tests/bench/gpu_device_figures.h"
#include "tests/bench/gpu_program_figures.h"
#include "tests/bench/gpu_service_figures.h"
#include "tests/bench/gpu_shape_figures.h"
#include "tests/bench/gpu_step_figures.h"
#include "tests/bench/gpu_test_figures.h"
#include "tests/bench/report.h"
#include "tests/bench/torch_times.h"

namespace outboard::bench {
namespace {

// Steps of a round, of which there are five.
constexpr int kGptSteps = 4, kMnistSteps = 50;
// Of PyTorch in one group: ours take less, and both have to end within ten minutes.
constexpr int kTorchSeconds = 380;
// Of BEAM in one group; OUTBOARD_GPU_SEARCH_SECONDS is another number, 0 for none.
constexpr double kSearchSeconds = 80;

// INVALID_ARGUMENT where it is named and no number.
absl::StatusOr<double> SearchSeconds() {
  const char* const named = std::getenv("OUTBOARD_GPU_SEARCH_SECONDS");
  if (named == nullptr) return kSearchSeconds;
  double seconds = 0;
  if (!absl::SimpleAtod(named, &seconds) || !std::isfinite(seconds) || seconds < 0)
    return absl::InvalidArgumentError(
        absl::StrCat("OUTBOARD_GPU_SEARCH_SECONDS is no number of seconds: ", named));
  return seconds;
}

// The figures of one group, which needs the device.
class Group : public FigureList {
 public:
  using FigureList::FigureList;

  // False, and everything is skipped, where there is no GPU.
  bool HasDevice() {
    const absl::Status there = runtime::CheckDeviceKind(std::string(runtime::kCuda));
    if (!there.ok()) Lacks("no GPU: it takes an H100 or H200");
    return there.ok();
  }
  // Its own process has the device until the pointer goes; null and a reason where it cannot.
  std::unique_ptr<runtime::Device> Open() {
    if (!HasDevice()) return nullptr;
    const auto search_seconds = SearchSeconds();
    if (!search_seconds.ok()) {
      Failed(search_seconds.status());
      return nullptr;
    }
    search_seconds_ = *search_seconds;
    auto device = runtime::MakeDevice(std::string(runtime::kCuda), {});
    if (!device.ok()) {
      Failed(device.status());
      return nullptr;
    }
    device_ = (*device)->properties();
    return *std::move(device);
  }
  // Of BEAM, of an open group.
  double search_seconds() const { return search_seconds_; }
  const runtime::DeviceProperties& properties() const { return device_; }

  void Failed(const absl::Status& status) { Lacks(std::string(status.message())); }

  void Add(const std::string& figure, double value, const std::string& unit,
           const std::string& peer, const std::string& note) {
    Report(figure, value, unit, peer, absl::StrCat(device_.name, "; ", note));
  }
  void Add(const DeviceFigure& figure) {
    Add(figure.name, figure.value, figure.unit, "", figure.note);
  }
  // PyTorch's seconds by ours, where there are PyTorch's.
  void AddRatio(const std::string& figure, double ours, const TorchTimes& torch,
                const std::string& of_torch, const std::string& note) {
    const auto theirs = torch.seconds.find(of_torch);
    if (theirs == torch.seconds.end()) return Skip(figure, torch.WhyNot(of_torch));
    Add(figure, theirs->second / ours, "ratio",
        absl::StrCat("ours ", ours * 1e3, " ms, PyTorch ", theirs->second * 1e3, " ms"), note);
  }
  // What MeanRatio or ConvolutionsRatio says, and the same without BEAM in the note.
  template <typename Ratio>
  void AddMean(const std::string& figure, Ratio ratio, const std::vector<DeviceTimes>& ours,
               const TorchTimes& torch, const std::string& prefix, const std::string& note) {
    const double searched = ratio(ours, torch.seconds, prefix, &DeviceTimes::seconds);
    if (searched == 0) return Skip(figure, WhyNoMean(ours, torch, prefix));
    Add(figure, searched, "ratio",
        absl::StrCat(ratio(ours, torch.seconds, prefix, &DeviceTimes::seconds_nobeam),
                     " without BEAM"),
        absl::StrCat(note, "; ", SearchedOf(ours, prefix)));
  }

 private:
  static std::string WhyNoMean(const std::vector<DeviceTimes>& ours, const TorchTimes& torch,
                               const std::string& prefix) {
    for (const DeviceTimes& time : ours)
      if (absl::StartsWith(time.name, prefix) && !torch.seconds.contains(time.name))
        return torch.WhyNot(time.name);
    return absl::StrCat("a time of ", prefix, "* is 0");
  }
  // "after BEAM: 7 of 8"
  static std::string SearchedOf(const std::vector<DeviceTimes>& ours, const std::string& prefix) {
    int all = 0, searched = 0;
    for (const DeviceTimes& time : ours) {
      if (!absl::StartsWith(time.name, prefix)) continue;
      ++all;
      searched += time.searched ? 1 : 0;
    }
    return absl::StrCat("after BEAM: ", searched, " of ", all);
  }

  runtime::DeviceProperties device_;
  double search_seconds_ = 0;
};

void ReportConformance(Group& group, runtime::Device& device) {
  if (device.properties().compute_capability != 90)
    return group.Lacks("the forms of instructions are those of sm_90a");
  auto conformance = CompareForms(device, ptx::InstructionForms(), /*seed=*/1);
  const auto products = conformance.ok() ? CompareProducts(device, test::HopperCases())
                                         : absl::StatusOr<Conformance>(conformance.status());
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

constexpr char kOfMatmul[] = "_8192_vs_torch";

GpuTrial TrialOf(GroupSize size, double search_seconds) {
  GpuTrial trial{.search_seconds = search_seconds};
  if (size == GroupSize::kSmall) trial.repeats = 1;
  return trial;
}

int64_t DivisorOf(GroupSize size) { return size == GroupSize::kSmall ? int64_t{1} << 20 : 1; }

std::vector<std::string> DeviceNames() {
  std::vector<std::string> names = {
      "cuda_scrub_s",
      "cuda_upload_gb_per_s",
      "cuda_park_gb_per_s",
      "cuda_snapshot_slowdown",
      "cuda_graph_us_per_kernel",
      "cuda_host_us_per_step",
      "cuda_beam_matmul_8192_s",
      "cuda_matmul_bf16_8192_mma_sync_vs_torch",
      "cuda_matmul_fp32_8192_error_vs_torch"};
  for (const std::string stream : {"elementwise", "reduce", "softmax", "layer_norm", "adamw"}) {
    names.push_back(absl::StrCat("cuda_stream_ratio_", stream));
    names.push_back(absl::StrCat("cuda_stream_", stream, "_vs_torch_compile"));
  }
  for (const std::string type : {"bf16", "fp32", "fp8"})
    for (const std::string way : {"", "_nobeam"})
      names.push_back(absl::StrCat("cuda_matmul_", type, kOfMatmul, way));
  for (const std::string type : {"bf16", "bf16_mma_sync", "fp32", "fp8"})
    names.push_back(absl::StrCat("cuda_matmul_", type, "_8192_tflops"));
  return names;
}

// What is compared with PyTorch in the group of the device.
void CompareWithTorch(Group& group, const DeviceMeasured& measured, const TorchTimes& torch) {
  constexpr char kMmaSync[] = "_mma_sync";
  for (const DeviceTimes& time : measured.times) {
    const std::string how = time.searched ? "after BEAM" : "without BEAM";
    if (!absl::StartsWith(time.name, "matmul_")) {
      group.AddRatio(absl::StrCat("cuda_", time.name, "_vs_torch_compile"), time.seconds, torch,
                     time.name, absl::StrCat("medians, ours ", how));
      continue;
    }
    const bool by_mma_sync = absl::EndsWith(time.name, kMmaSync);
    const std::string of_torch(absl::StripSuffix(time.name, kMmaSync));
    const std::string figure =
        absl::StrCat("cuda_", of_torch, "_8192", by_mma_sync ? kMmaSync : "", "_vs_torch");
    group.AddRatio(figure, time.seconds, torch, of_torch, absl::StrCat("medians, ours ", how));
    if (by_mma_sync) continue;
    group.AddRatio(absl::StrCat(figure, "_nobeam"), time.seconds_nobeam, torch, of_torch,
                   "medians, ours without BEAM");
  }
  constexpr char kError[] = "cuda_matmul_fp32_8192_error_vs_torch";
  constexpr char kOfTorch[] = "matmul_fp32_error";
  const auto error = torch.seconds.find(kOfTorch);
  if (error == torch.seconds.end()) return group.Skip(kError, torch.WhyNot(kOfTorch));
  group.Add(kError, measured.fp32_error / error->second, "ratio",
            absl::StrCat("ours ", measured.fp32_error, ", PyTorch ", error->second),
            "the largest in 16 rows, by the sum of the terms, beside f64; of the same matrices; "
            "at most 1 is wanted");
}

}  // namespace

std::vector<std::string> GpuFigureNames(const std::string& group) {
  static const std::map<std::string, std::vector<std::string>> names = {
      {"gpu_device", DeviceNames()},
      {"gpu_shapes",
       {"cuda_matmul_shapes_vs_torch", "cuda_attention_forward_vs_torch",
        "cuda_attention_backward_vs_torch", "cuda_attention_backward_equal_bits",
        "cuda_attention_backward_equal_bits_beam"}},
      {"gpu_programs",
       {"cuda_mnist_step_vs_torch", "cuda_mnist_step_vs_torch_eager", "cuda_conv_resnet50_vs_torch",
        "cuda_conv_resnet50_forward_vs_torch", "cuda_decode_1b5_of_bound",
        "cuda_decode_1b5_vs_torch_compile"}},
      {"gpu_steps",
       {"cuda_gpt2_124m_step_vs_torch_compile", "cuda_gpt2_124m_step_vs_torch_eager",
        "cuda_gpt2_124m_mfu"}},
      {"gpu_service",
       {"cuda_step_extra_us", "cuda_first_step_s_mnist_cold", "cuda_first_step_s_mnist_warm",
        "cuda_first_step_s_gpt2_cold", "cuda_first_step_s_gpt2_warm"}},
      {"gpu_tests",
       {"cuda_emulator_conformance", "cuda_device_tests_ratio", "cuda_sanitizer_errors"}},
  };
  const auto found = names.find(group);
  return found == names.end() ? std::vector<std::string>() : found->second;
}

void GpuDeviceGroup(GroupSize size) {
  Group group(GpuFigureNames("gpu_device"));
  auto device = group.Open();
  if (device == nullptr) return;
  // Half of it for the product of bf16 alone.
  const double search = group.search_seconds() / 2;
  DeviceSizes sizes;
  if (size == GroupSize::kSmall)
    sizes = {.copy_bytes = 1 << 16,
             .stream_bytes = 1 << 15,
             .stream_columns = 64,
             .product = 64,
             .kernels = 3,
             .repeats = 1,
             .beam_width = 1};
  sizes.beam_seconds = sizes.search_seconds = search;
  const auto measured = MeasureGpuDevice(
      *device, sizes, [&](const DeviceFigure& figure) { group.Add(figure); });
  if (!measured.ok()) return group.Failed(measured.status());
  group.Lacks(measured->failed.empty() ? "a device without products of 8-bit floats"
                                       : measured->failed);
  device.reset();  // PyTorch gets the memory
  CompareWithTorch(group, *measured, TorchTimesOf("device", kTorchSeconds));
}

void GpuShapesGroup(GroupSize size) {
  Group group(GpuFigureNames("gpu_shapes"));
  auto device = group.Open();
  if (device == nullptr) return;
  const auto report_bits = [&](const std::string& figure, const EqualBits& bits) {
    if (bits.steps == 0) return group.Skip(figure, "no step was searched");
    group.Add(figure, static_cast<double>(bits.equal) / static_cast<double>(bits.steps), "", "",
              absl::StrCat("steps whose results are the same bits in ", kEqualRuns, " runs, of ",
                           bits.steps, "; others:", bits.unequal.empty() ? " none" : bits.unequal));
  };
  const auto measured =
      MeasureModelShapes(*device, TrialOf(size, group.search_seconds()), DivisorOf(size),
                         [&](const ShapesMeasured& so_far) {
                           report_bits("cuda_attention_backward_equal_bits", so_far.as_chosen);
                         });
  if (!measured.ok()) return group.Failed(measured.status());
  report_bits("cuda_attention_backward_equal_bits_beam", measured->after_beam);
  device.reset();
  const TorchTimes torch = TorchTimesOf("shapes", kTorchSeconds);
  const std::string note = "geometric mean of medians";
  for (const auto& [figure, prefix, of] :
       {std::tuple("cuda_matmul_shapes_vs_torch", "matmul_shape_", ""),
        {"cuda_attention_forward_vs_torch", "attention_forward_", ""},
        {"cuda_attention_backward_vs_torch", "attention_backward_",
         " of whole steps, forward and gradients"}})
    group.AddMean(figure, MeanRatio, measured->times, torch, prefix, note + of);
}

void GpuProgramsGroup(GroupSize size) {
  Group group(GpuFigureNames("gpu_programs"));
  auto device = group.Open();
  if (device == nullptr) return;
  // Half of it for a token, a sixth for MNIST's step.
  const double search = group.search_seconds() / 2;
  const auto times = MeasureGpuPrograms(*device, TrialOf(size, search * 2 / 3), DivisorOf(size));
  device.reset();
  // Its network has one size. On the tests' own driver a candidate for its largest kernel outlives
  // what a launch may take, which loses the device; so there is no search where sizes are small.
  const auto mnist = size == GroupSize::kSmall
                         ? MeasureMnistStep(MnistSizes{4, 1, 1}, 1, /*search_seconds=*/0)
                         : MeasureMnistStep(MnistSizes{}, kMnistSteps, search / 3);
  DecodeModel model;
  if (size == GroupSize::kSmall)
    model = {.layers = 1, .width = 32, .heads = 2, .vocabulary = 64, .context = 16, .tokens = 3};
  const auto decode = MeasureDecode(model, search);
  for (const absl::Status& status : {decode.status(), mnist.status(), times.status()})
    if (!status.ok()) group.Failed(status);
  const auto weights = static_cast<double>(model.WeightBytes());
  if (decode.ok())
    group.Add("cuda_decode_1b5_of_bound",
              weights / decode->copied_per_s / decode->token.seconds, "ratio",
              absl::StrCat(weights / decode->copied_per_s / decode->token.seconds_nobeam,
                           " without BEAM"),
              absl::StrCat("48 layers of width 1,600, bf16, caches of 1,024, a token in ",
                           decode->token.seconds * 1e3, " ms; weights at the rate of a copy; ",
                           decode->token.searched, " kernels after BEAM, ", decode->compiled_late,
                           " graphs compiled late; at least 0.6 is wanted"));
  const TorchTimes torch = TorchTimesOf("programs", kTorchSeconds);
  if (decode.ok())
    group.AddRatio("cuda_decode_1b5_vs_torch_compile", decode->token.seconds, torch, "decode_1b5",
                   absl::StrCat("medians, ours in one process, ", decode->token.searched,
                                " kernels after BEAM, ", decode->token.seconds_nobeam * 1e3,
                                " ms without"));
  if (mnist.ok())
    for (const auto& [figure, peer, how] :
         {std::tuple("cuda_mnist_step_vs_torch", "mnist_step", "torch.compile with CUDA graphs"),
          {"cuda_mnist_step_vs_torch_eager", "mnist_step_eager", "eager"}})
      group.AddRatio(figure, mnist->seconds, torch, peer,
                     absl::StrCat(how,
                                  "; 512 pictures, in one process, medians of whole steps with "
                                  "their host; ours with ",
                                  mnist->searched, " kernels after BEAM, ",
                                  mnist->seconds_nobeam * 1e3, " ms without"));
  if (!times.ok()) return;
  for (const auto& [figure, prefix, what] :
       {std::tuple("cuda_conv_resnet50_vs_torch", "conv_step_", "forward and both gradients"),
        {"cuda_conv_resnet50_forward_vs_torch", "conv_forward_", "forward"}})
    group.AddMean(figure, ConvolutionsRatio, *times, torch, prefix,
                  absl::StrCat(what,
                               " of all 53, medians by the device's clock of recorded "
                               "launches on both sides; theirs by cuDNN's own search, in the "
                               "faster of both layouts"));
}

void GpuStepsGroup(GroupSize size) {
  Group group(GpuFigureNames("gpu_steps"));
  if (group.Open() == nullptr) return;
  std::vector<GptStep> steps = Gpt2Steps();
  if (size == GroupSize::kSmall)
    for (GptStep& step : steps) step = SmallStep(step);
  const double search = group.search_seconds() / 2;
  const auto times = MeasureGptStep(steps[0], kGptSteps, search);
  // Before PyTorch, which may take all of the time that is left.
  const double peak = PeakBf16Flops(group.properties());
  const auto large =
      peak == 0 ? absl::StatusOr<SessionTimes>(absl::NotFoundError(
                      absl::StrCat("the peak of ", group.properties().name, " is not known")))
                : MeasureGptStep(steps[1], kGptSteps, search);
  if (large.ok())
    group.Add("cuda_gpt2_124m_mfu", ModelFlops(steps[1]) / large->seconds / peak, "ratio",
              absl::StrCat(ModelFlops(steps[1]) / large->seconds_nobeam / peak, " without BEAM"),
              absl::StrCat("32 x 1,024 tokens in ", large->seconds * 1e3, " ms, bf16, ",
                           large->searched, " kernels after BEAM, of ", peak / 1e12,
                           " TFLOP/s; at least 0.40 is wanted"));
  else
    group.Skip("cuda_gpt2_124m_mfu", std::string(large.status().message()));
  if (!times.ok()) return group.Failed(times.status());
  const TorchTimes torch = TorchTimesOf("steps", kTorchSeconds);
  for (const std::string how : {"compile", "eager"})
    group.AddRatio(absl::StrCat("cuda_gpt2_124m_step_vs_torch_", how), times->seconds, torch,
                   absl::StrCat("gpt2_step_", how),
                   absl::StrCat("8 x 1,024 tokens, bf16, in one process, medians; ours with ",
                                times->searched, " kernels after BEAM, ",
                                times->seconds_nobeam * 1e3, " ms without"));
}

void GpuServiceGroup() {
  Group group(GpuFigureNames("gpu_service"));
  if (group.Open() == nullptr) return;
  const auto figures = MeasureGpuService({});
  if (!figures.ok()) return group.Failed(figures.status());
  for (const DeviceFigure& figure : *figures) group.Add(figure);
}

void GpuTestsGroup() {
  Group group(GpuFigureNames("gpu_tests"));
  auto device = group.Open();
  if (device == nullptr) return;
  // First: it takes half a minute, and the tests may take all that is left of a group's time.
  ReportConformance(group, *device);
  device.reset();
  const SanitizerRuns sanitizer = RunTestsUnderSanitizer();
  if (sanitizer.errors == 0 && !sanitizer.lacks.empty())
    group.Skip("cuda_sanitizer_errors", sanitizer.lacks);
  else  // what was found counts, also where a tool did not end well
    group.Add("cuda_sanitizer_errors", static_cast<double>(sanitizer.errors), "count", "",
              absl::StrCat("device_test under compute-sanitizer's four tools; ", sanitizer.lacks,
                           sanitizer.lacks.empty() ? "" : "; ", "0 are wanted"));
  const TestsOnDevice tests = RunTestsOnDevice();
  if (tests.ran == 0) return group.Lacks("there are no tests in this build (OUTBOARD_TESTS)");
  group.Add("cuda_device_tests_ratio",
            static_cast<double>(tests.passed) / static_cast<double>(tests.ran), "", "",
            absl::StrCat(tests.ran,
                         " tests; failed: ", tests.failed.empty() ? "none" : tests.failed));
}

}  // namespace outboard::bench
