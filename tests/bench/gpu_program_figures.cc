#include "tests/bench/gpu_program_figures.h"

#include <algorithm>
#include <functional>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "client/examples/mnist.h"
#include "tests/bench/gpu_plan.h"
#include "tests/compiler/schedule_programs.h"
#include "worker/engine/device_target.h"

namespace outboard::bench {
namespace {

constexpr int64_t kMnistBatch = 512, kMnistPictures = 60000;
constexpr int64_t kConvPictures = 32;
constexpr int64_t kLayers = 48, kWidth = 1600, kBf16Bytes = 2;  // of 1.5 thousand million

int64_t Part(int64_t size, int64_t divisor, int64_t least) {
  return std::max(least, size / divisor);
}

Tensor Held(const Dims& dims, DType dtype) { return Tensor::zeros(dims, dtype).state_(); }

}  // namespace

std::string ConvShape::Name() const {
  return absl::StrCat("conv_", channels, "x", side, "x", filters, "_", kernel, "_", stride);
}

std::vector<ConvShape> ResNetConvolutions() {
  return {{3, 224, 64, 7, 2},    {64, 56, 64, 1, 1},   {64, 56, 64, 3, 1},   {64, 56, 256, 1, 1},
          {256, 56, 128, 1, 1},  {128, 56, 128, 3, 2}, {128, 28, 512, 1, 1}, {256, 28, 256, 3, 2},
          {256, 14, 1024, 1, 1}, {512, 14, 512, 3, 2}, {512, 7, 2048, 1, 1}};
}

absl::StatusOr<DeviceMeasured> MeasureGpuPrograms(runtime::Device& device, int repeats,
                                                  int64_t divisor) {
  const Target target = worker::TargetOfDevice(device.properties());
  DeviceMeasured measured;
  const auto time = [&](const std::string& name, std::function<void()> run) -> absl::Status {
    const test::Program program = {name, [run = std::move(run)](test::Size) { run(); }};
    OB_ASSIGN_OR_RETURN(const std::unique_ptr<GpuPlan> plan,
                        GpuPlan::Make(device, target, [&](Graph& g) {
                          return test::RecordProgram(g, program, test::Size::kReal);
                        }));
    OB_ASSIGN_OR_RETURN(const double seconds, plan->Seconds(repeats));
    measured.times.push_back({name, seconds});
    return absl::OkStatus();
  };
  OB_RETURN_IF_ERROR(time("mnist_step", [&] {
    const int64_t pictures = Part(kMnistPictures, divisor, 4);
    examples::MnistTrainer trainer(Held({pictures, 1, 28, 28}, DType::kU8),
                                   Held({pictures}, DType::kU8), Part(kMnistBatch, divisor, 1));
    trainer.Step();
  }));
  for (const ConvShape& shape : ResNetConvolutions())
    OB_RETURN_IF_ERROR(time(shape.Name(), [&] {
      const int64_t channels = Part(shape.channels, divisor, 3),
                    side = Part(shape.side, divisor, shape.kernel),
                    filters = Part(shape.filters, divisor, 8);
      const Tensor x =
          Held({Part(kConvPictures, divisor, 1), channels, side, side}, DType::kBF16);
      const Tensor w = Held({filters, channels, shape.kernel, shape.kernel}, DType::kBF16);
      x.conv2d(w, {}, {.stride = shape.stride, .padding = shape.kernel / 2}).realize();
    }));
  const int64_t layers = Part(kLayers, divisor, 1), width = Part(kWidth, divisor, 16);
  OB_RETURN_IF_ERROR(time("decode_1b5", [&] {
    Tensor x = Held({1, width}, DType::kBF16);
    for (int64_t layer = 0; layer < layers; ++layer) {
      const Tensor three = x.matmul(Held({width, 3 * width}, DType::kBF16));
      const Tensor mixed = three.slice(1, 0, width) + three.slice(1, width, 2 * width) +
                           three.slice(1, 2 * width, 3 * width);
      x = x + mixed.matmul(Held({width, width}, DType::kBF16));
      const Tensor up = x.matmul(Held({width, 4 * width}, DType::kBF16)).relu();
      x = x + up.matmul(Held({4 * width, width}, DType::kBF16));
    }
    x.realize();
  }));
  OB_ASSIGN_OR_RETURN(
      const double copied,
      CopiedBytesPerSecond(device, Part(int64_t{1} << 30, divisor, 1 << 10), repeats));
  const auto weights = static_cast<double>(layers * 12 * width * width * kBf16Bytes);
  measured.figures.push_back(
      {"cuda_decode_1b5_of_bound", "ratio",
       "products of 48 layers of width 1,600, a token, bf16, without attention and BEAM; of the "
       "rate of a copy within the device; at least 0.6 is wanted",
       weights / copied / measured.times.back().seconds});
  return measured;
}

}  // namespace outboard::bench
