// Training steps of a transformer on the tests' own driver, at a small size: that a step is
// measured, and that PyTorch's side has the same ones.
#include "tests/bench/gpu_step_figures.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/support/command_output.h"
#include "tests/support/paths.h"

namespace outboard::bench {
namespace {

TEST(GpuStepFigures, AStepIsMeasured) {
  setenv("OUTBOARD_CUDA_DRIVER", test::kFakeCuda, 1);
  setenv("OUTBOARD_FAKE_CUDA_RUNS", "1", 1);
  setenv("OUTBOARD_FAKE_CUDA_MIB", "64", 1);
  const GptStep step = SmallStep(Gpt2Steps()[0]);
  const auto times = MeasureGptStep(step, /*steps=*/1, /*search_seconds=*/2);
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_GT(times->seconds, 0);
  EXPECT_GT(times->seconds_nobeam, 0);
  EXPECT_GT(times->searched, 0u);
}

TEST(GpuStepFigures, MnistsStepIsMeasured) {
  setenv("OUTBOARD_CUDA_DRIVER", test::kFakeCuda, 1);
  setenv("OUTBOARD_FAKE_CUDA_RUNS", "1", 1);
  setenv("OUTBOARD_FAKE_CUDA_MIB", "64", 1);
  const auto times = MeasureMnistStep({4, 1, /*rounds=*/1}, /*steps=*/1, /*search_seconds=*/0);
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_GT(times->seconds, 0);
  EXPECT_EQ(times->seconds, times->seconds_nobeam);
}

// 2 x 16 tokens of one layer of width 4 and 8 words: 12 x 16 + 32 weights in products.
TEST(GpuStepFigures, OperationsAreCounted) {
  const GptStep step = {"", {.vocabulary = 8, .layers = 1, .width = 4, .context = 16}, 2};
  EXPECT_EQ(ModelFlops(step), 2 * 16 * (6.0 * (12 * 16 + 32) + 12 * 4 * 16));
  // Of GPT-2 124M some 6 times its 124 million parameters a token, and attention.
  const GptStep gpt2 = Gpt2Steps()[0];
  EXPECT_NEAR(ModelFlops(gpt2) / (8 * 1024) / 124e6, 6.9, 0.1);
}

TEST(GpuStepFigures, ThePeakIsThatOfTheDevice) {
  const auto peak = [](const std::string& name) {
    runtime::DeviceProperties properties;
    properties.name = name;
    return PeakBf16Flops(properties);
  };
  EXPECT_EQ(peak("NVIDIA H100 80GB HBM3"), 989e12);
  EXPECT_EQ(peak("NVIDIA H100 PCIe"), 756e12);
  EXPECT_EQ(peak("NVIDIA H200"), 989e12);
  EXPECT_EQ(peak("another"), 0);
}

TEST(GpuStepFigures, PyTorchsSideHasTheSame) {
  const absl::StatusOr<std::string> said = test::OutputOf(
      absl::StrCat("python3 ", test::kBenchFolder, "/torch_gpu.py --names steps"));
  ASSERT_TRUE(said.ok()) << said.status();
  EXPECT_EQ((std::set<std::string>(absl::StrSplit(*said, '\n', absl::SkipEmpty()))),
            (std::set<std::string>{"gpt2_step_eager", "gpt2_step_compile"}));
}

}  // namespace
}  // namespace outboard::bench
