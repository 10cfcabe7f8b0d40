// Programs on a GPU: that each is measured, at small sizes on the tests' own driver, and that
// PyTorch's side has the same ones.
#include "tests/bench/gpu_program_figures.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "compiler/ir/spec.h"
#include "compiler/ir/uop.h"
#include "runtime/devices.h"
#include "tests/bench/gpu_decode_figures.h"
#include "tests/support/command_output.h"
#include "tests/support/paths.h"

namespace outboard::bench {
namespace {

std::set<std::string> Names() {
  std::set<std::string> names;
  for (const ConvShape& shape : ResNetConvolutions())
    for (const char* const way : {"conv_forward_", "conv_step_"})
      names.insert(absl::StrCat(way, shape.Name()));
  return names;
}

void UseTestsDriver() {
  setenv("OUTBOARD_CUDA_DRIVER", test::kFakeCuda, 1);
  setenv("OUTBOARD_FAKE_CUDA_RUNS", "1", 1);
  setenv("OUTBOARD_FAKE_CUDA_MIB", "64", 1);
}

TEST(GpuProgramFigures, EachIsMeasured) {
  UseTestsDriver();
  const auto device = ValueOrDie(runtime::MakeDevice(std::string(runtime::kCuda), {}));
  const auto times = MeasureGpuPrograms(*device, {.repeats = 1}, /*divisor=*/1 << 20);
  ASSERT_TRUE(times.ok()) << times.status();
  std::set<std::string> names;
  for (const DeviceTimes& time : *times) {
    EXPECT_GT(time.seconds, 0) << time.name;
    EXPECT_TRUE(names.insert(time.name).second) << time.name;
  }
  EXPECT_EQ(names, Names());
}

TEST(GpuProgramFigures, PicturesAndWeightsOfConvolutionsHaveTheirChannelsLast) {
  const std::vector<ConvShape> shapes = ResNetConvolutions();
  const std::vector<GpuProgram> programs = ConvolutionPrograms(/*divisor=*/1);
  ASSERT_EQ(programs.size(), 2 * shapes.size());
  for (size_t i = 0; i < programs.size(); ++i) {
    Graph g;
    int with_channels = 0;
    for (const UOp* input : ParamsOf(programs[i].graph(g).sink)) {
      if (input->shape.size() != 4) continue;
      const int64_t last = input->shape[3].value();
      EXPECT_TRUE(last == shapes[i / 2].channels || last == shapes[i / 2].filters)
          << programs[i].name << ": " << last;
      ++with_channels;
    }
    EXPECT_EQ(with_channels, i % 2 == 0 ? 2 : 3) << programs[i].name;
  }
}

TEST(GpuProgramFigures, ATokenIsMeasured) {
  UseTestsDriver();
  const DecodeModel model = {
      .layers = 1, .width = 32, .heads = 2, .vocabulary = 64, .context = 16, .tokens = 3};
  const auto measured = MeasureDecode(model, /*search_seconds=*/1);
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_GT(measured->token.seconds, 0);
  EXPECT_GT(measured->token.seconds_nobeam, 0);
  EXPECT_GT(measured->token.searched, 0u);
  EXPECT_GT(measured->copied_per_s, 0);
  EXPECT_EQ(measured->compiled_late, 0) << "a graph for each position";
  EXPECT_EQ(model.WeightBytes(), (12 * 32 * 32 + 64 * 32) * 2);
}

// 53 convolutions of 25.5 million parameters less the last product's (2.05 million) and the norms'.
TEST(GpuProgramFigures, AllLayersOfTheNetworkAreThere) {
  int layers = 0;
  int64_t weights = 0;
  std::set<std::string> names;
  for (const ConvShape& shape : ResNetConvolutions()) {
    layers += shape.count;
    weights += shape.count * shape.channels * shape.filters * shape.kernel * shape.kernel;
    EXPECT_TRUE(names.insert(shape.Name()).second) << shape.Name();
  }
  EXPECT_EQ(layers, 53);
  EXPECT_EQ(weights, 23'454'912);
}

TEST(GpuProgramFigures, LayersCountAsOftenAsTheNetworkHasThem) {
  std::vector<DeviceTimes> ours;
  std::map<std::string, double> torch;
  double sum = 0;
  for (const ConvShape& shape : ResNetConvolutions()) {
    ours.push_back({absl::StrCat("a_", shape.Name()), 1, 2});
    torch[ours.back().name] = shape.kernel;
    sum += static_cast<double>(shape.count * shape.kernel);
  }
  EXPECT_DOUBLE_EQ(ConvolutionsRatio(ours, torch, "a_"), sum / 53);
  EXPECT_DOUBLE_EQ(ConvolutionsRatio(ours, torch, "a_", &DeviceTimes::seconds_nobeam), sum / 106);
  torch.erase(torch.begin());
  EXPECT_EQ(ConvolutionsRatio(ours, torch, "a_"), 0) << "one has no peer";
}

TEST(GpuProgramFigures, PyTorchsSideHasTheSame) {
  const absl::StatusOr<std::string> said = test::OutputOf(
      absl::StrCat("python3 ", test::kBenchFolder, "/torch_gpu.py --names programs"));
  ASSERT_TRUE(said.ok()) << said.status();
  std::set<std::string> names = Names();
  names.insert({"mnist_step", "mnist_step_eager", "decode_1b5"});
  EXPECT_EQ((std::set<std::string>(absl::StrSplit(*said, '\n', absl::SkipEmpty()))), names);
}

}  // namespace
}  // namespace outboard::bench
