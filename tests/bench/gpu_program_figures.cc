#include "tests/bench/gpu_program_figures.h"

#include <algorithm>
#include <functional>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "tests/compiler/schedule_programs.h"
#include "worker/engine/device_target.h"

namespace outboard::bench {
namespace {

constexpr int64_t kConvPictures = 32;

int64_t Part(int64_t size, int64_t divisor, int64_t least) {
  return std::max(least, size / divisor);
}

Tensor Held(const Dims& dims, DType dtype) { return Tensor::zeros(dims, dtype).state_(); }

GpuProgram Program(const std::string& name, std::function<void()> run) {
  return {name, [name, run = std::move(run)](Graph& g) {
            SentProgram sent;
            sent.sink = test::RecordProgram(g, {name, [&](test::Size) { run(); }},
                                            test::Size::kReal, &sent.donated);
            return sent;
          }};
}

// The layer, and where `gradients` both of its gradients. Pictures, weights and results lie with
// their channels last, as the compiler lays out what is between two layers. The peer may have them
// either way (torch_gpu.py).
void Convolution(const ConvShape& shape, int64_t divisor, bool gradients) {
  const int64_t channels = Part(shape.channels, divisor, 3),
                side = Part(shape.side, divisor, shape.kernel),
                filters = Part(shape.filters, divisor, 8);
  const Dims channels_first = {0, 3, 1, 2}, channels_last = {0, 2, 3, 1};
  const auto held = [&](const Dims& dims) {
    return Held(dims, DType::kBF16).permute(channels_first);
  };
  // Without requires_grad_(), which would make them inputs as they are read: channels first.
  const Tensor x = held({Part(kConvPictures, divisor, 1), side, side, channels});
  const Tensor w = held({filters, shape.kernel, shape.kernel, channels});
  const Tensor y = x.conv2d(w, {}, {.stride = shape.stride, .padding = shape.kernel / 2});
  std::vector<Tensor> results = {y.permute(channels_last)};
  if (gradients) {
    const Tensor of_y = held({y.shape()[0], y.shape()[2], y.shape()[3], y.shape()[1]});
    for (const Tensor& gradient : y.gradient({x, w}, of_y))
      results.push_back(gradient.permute(channels_last));
  }
  realize(results);
}

}  // namespace

std::string ConvShape::Name() const {
  return absl::StrCat(channels, "x", side, "x", filters, "_", kernel, "_", stride);
}

std::vector<ConvShape> ResNetConvolutions() {
  return {{3, 224, 64, 7, 2, 1},
          // 56 x 56, three blocks
          {64, 56, 64, 1, 1, 1},
          {256, 56, 64, 1, 1, 2},
          {64, 56, 64, 3, 1, 3},
          {64, 56, 256, 1, 1, 4},
          // to 28 x 28, four blocks
          {256, 56, 128, 1, 1, 1},
          {128, 56, 128, 3, 2, 1},
          {128, 28, 512, 1, 1, 4},
          {256, 56, 512, 1, 2, 1},
          {512, 28, 128, 1, 1, 3},
          {128, 28, 128, 3, 1, 3},
          // to 14 x 14, six blocks
          {512, 28, 256, 1, 1, 1},
          {256, 28, 256, 3, 2, 1},
          {256, 14, 1024, 1, 1, 6},
          {512, 28, 1024, 1, 2, 1},
          {1024, 14, 256, 1, 1, 5},
          {256, 14, 256, 3, 1, 5},
          // to 7 x 7, three blocks
          {1024, 14, 512, 1, 1, 1},
          {512, 14, 512, 3, 2, 1},
          {512, 7, 2048, 1, 1, 3},
          {1024, 14, 2048, 1, 2, 1},
          {2048, 7, 512, 1, 1, 2},
          {512, 7, 512, 3, 1, 2}};
}

std::vector<GpuProgram> ConvolutionPrograms(int64_t divisor) {
  std::vector<GpuProgram> programs;
  for (const ConvShape& shape : ResNetConvolutions())
    for (const bool gradients : {false, true})
      programs.push_back(
          Program(absl::StrCat(gradients ? "conv_step_" : "conv_forward_", shape.Name()),
                  [=] { Convolution(shape, divisor, gradients); }));
  return programs;
}

absl::StatusOr<std::vector<DeviceTimes>> MeasureGpuPrograms(runtime::Device& device,
                                                            const GpuTrial& trial,
                                                            int64_t divisor) {
  return MeasurePrograms(device, worker::TargetOfDevice(device.properties()),
                         ConvolutionPrograms(divisor), trial);
}

double ConvolutionsRatio(const std::vector<DeviceTimes>& ours,
                         const std::map<std::string, double>& torch, const std::string& prefix,
                         double DeviceTimes::*seconds) {
  double sum = 0, theirs = 0;
  for (const ConvShape& shape : ResNetConvolutions()) {
    const std::string name = absl::StrCat(prefix, shape.Name());
    const auto peer = torch.find(name);
    const auto time = std::find_if(ours.begin(), ours.end(),
                                   [&](const DeviceTimes& one) { return one.name == name; });
    if (peer == torch.end() || time == ours.end() || !((*time).*seconds > 0)) return 0;
    theirs += shape.count * peer->second;
    sum += shape.count * (*time).*seconds;
  }
  return theirs / sum;
}

}  // namespace outboard::bench
