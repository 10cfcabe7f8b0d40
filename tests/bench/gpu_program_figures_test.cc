// Whole programs on a GPU: that each is measured, at small sizes on the tests' own driver, and that
// PyTorch's side has the same ones.
#include "tests/bench/gpu_program_figures.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "runtime/devices.h"
#include "tests/support/command_output.h"

namespace outboard::bench {
namespace {

std::set<std::string> Names() {
  std::set<std::string> names = {"mnist_step", "decode_1b5"};
  for (const ConvShape& shape : ResNetConvolutions()) names.insert(shape.Name());
  return names;
}

TEST(GpuProgramFigures, EachIsMeasured) {
  setenv("OUTBOARD_CUDA_DRIVER", FAKE_CUDA, 1);
  setenv("OUTBOARD_FAKE_CUDA_RUNS", "1", 1);
  setenv("OUTBOARD_FAKE_CUDA_MIB", "64", 1);
  const auto device = ValueOrDie(runtime::MakeDevice(std::string(runtime::kCuda), {}));
  const auto measured = MeasureGpuPrograms(*device, /*repeats=*/1, /*divisor=*/1 << 20);
  ASSERT_TRUE(measured.ok()) << measured.status();
  std::set<std::string> names;
  for (const DeviceTimes& time : measured->times) {
    EXPECT_GT(time.seconds, 0) << time.name;
    EXPECT_TRUE(names.insert(time.name).second) << time.name;
  }
  EXPECT_EQ(names, Names());
  ASSERT_EQ(measured->figures.size(), 1u);
  EXPECT_EQ(measured->figures[0].name, "cuda_decode_1b5_of_bound");
  EXPECT_GT(measured->figures[0].value, 0);
}

TEST(GpuProgramFigures, PyTorchsSideHasTheSame) {
  const absl::StatusOr<std::string> said = test::OutputOf(
      absl::StrCat("python3 ", OUTBOARD_BENCH_SOURCES, "/torch_gpu.py --names programs"));
  ASSERT_TRUE(said.ok()) << said.status();
  std::set<std::string> names = Names();
  names.insert("mnist_step_eager");
  EXPECT_EQ((std::set<std::string>(absl::StrSplit(*said, '\n', absl::SkipEmpty()))), names);
}

}  // namespace
}  // namespace outboard::bench
