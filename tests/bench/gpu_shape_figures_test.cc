// Products and attention in the shapes of models: that each is measured, at small sizes on the
// tests' own driver, and that PyTorch's side has the same ones.
#include "tests/bench/gpu_shape_figures.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "runtime/devices.h"
#include "tests/support/command_output.h"
#include "tests/support/paths.h"

namespace outboard::bench {
namespace {

std::set<std::string> OurNames() {
  std::set<std::string> names;
  for (const ProductShape& shape : ModelProducts()) names.insert(shape.Name());
  for (const AttentionCase& one : ModelAttention())
    for (const bool backward : {false, true}) names.insert(one.Name(backward));
  return names;
}

TEST(GpuShapeFigures, EachIsMeasured) {
  setenv("OUTBOARD_CUDA_DRIVER", test::kFakeCuda, 1);
  setenv("OUTBOARD_FAKE_CUDA_RUNS", "1", 1);
  setenv("OUTBOARD_FAKE_CUDA_MIB", "64", 1);
  const auto device = ValueOrDie(runtime::MakeDevice(std::string(runtime::kCuda), {}));
  size_t told = 0;
  const auto measured =
      MeasureModelShapes(*device, {.repeats = 1}, /*divisor=*/1 << 20,
                         [&](const ShapesMeasured& so_far) { told = so_far.as_chosen.steps; });
  ASSERT_TRUE(measured.ok()) << measured.status();
  const EqualBits& bits = measured->as_chosen;
  EXPECT_EQ(told, bits.steps);
  EXPECT_EQ(bits.steps, ModelAttention().size());
  EXPECT_EQ(bits.equal, bits.steps) << bits.unequal;
  EXPECT_EQ(measured->after_beam.steps, 0u) << "nothing was searched";
  std::set<std::string> names;
  for (const DeviceTimes& time : measured->times) {
    EXPECT_GT(time.seconds, 0) << time.name;
    EXPECT_FALSE(time.searched) << time.name;
    EXPECT_TRUE(names.insert(time.name).second) << time.name;
  }
  EXPECT_EQ(names, OurNames());
}

TEST(GpuShapeFigures, PyTorchsSideHasTheSame) {
  const absl::StatusOr<std::string> said = test::OutputOf(
      absl::StrCat("python3 ", test::kBenchFolder, "/torch_gpu.py --names shapes"));
  ASSERT_TRUE(said.ok()) << said.status();
  EXPECT_EQ((std::set<std::string>(absl::StrSplit(*said, '\n', absl::SkipEmpty()))), OurNames());
}

TEST(GpuShapeFigures, AMeanLacksNothing) {
  const std::vector<DeviceTimes> ours = {{"a_1", 1, 2}, {"a_2", 2, 4}, {"b", 1, 1}};
  EXPECT_DOUBLE_EQ(MeanRatio(ours, {{"a_1", 2}, {"a_2", 16}}, "a_"), 4);
  EXPECT_DOUBLE_EQ(
      MeanRatio(ours, {{"a_1", 2}, {"a_2", 16}}, "a_", &DeviceTimes::seconds_nobeam), 2);
  EXPECT_EQ(MeanRatio(ours, {{"a_1", 2}}, "a_"), 0) << "a_2 has no peer";
  EXPECT_EQ(MeanRatio(ours, {}, "c"), 0);
}

}  // namespace
}  // namespace outboard::bench
