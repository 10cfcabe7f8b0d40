// The figures of a GPU, at small sizes on the tests' own driver: that each is measured.
#include "tests/bench/gpu_device_figures.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "runtime/devices.h"
#include "tests/support/command_output.h"
#include "tests/support/paths.h"

namespace outboard::bench {
namespace {

TEST(GpuDeviceFigures, EachIsMeasured) {
  setenv("OUTBOARD_CUDA_DRIVER", test::kFakeCuda, 1);
  setenv("OUTBOARD_FAKE_CUDA_RUNS", "1", 1);
  setenv("OUTBOARD_FAKE_CUDA_MIB", "64", 1);
  const auto device = ValueOrDie(runtime::MakeDevice(std::string(runtime::kCuda), {}));
  std::vector<std::string> told;
  const auto measured = MeasureGpuDevice(*device, {.copy_bytes = 1 << 16,
                                                   .stream_bytes = 1 << 15,
                                                   .stream_columns = 64,
                                                   .product = 64,
                                                   .kernels = 3,
                                                   .repeats = 2,
                                                   .beam_width = 1,
                                                   .beam_seconds = 20,
                                                   .search_seconds = 8},
                                         [&](const DeviceFigure& figure) {
                                           told.push_back(figure.name);
                                         });
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_EQ(measured->failed, "");
  std::set<std::string> names;
  for (const DeviceFigure& figure : measured->figures) {
    EXPECT_GT(figure.value, 0) << figure.name;
    EXPECT_TRUE(names.insert(figure.name).second) << figure.name;
  }
  for (const char* const name :
       {"cuda_upload_gb_per_s", "cuda_park_gb_per_s", "cuda_scrub_s", "cuda_snapshot_slowdown",
        "cuda_stream_ratio_adamw", "cuda_graph_us_per_kernel", "cuda_host_us_per_step",
        "cuda_beam_matmul_8192_s", "cuda_matmul_bf16_mma_sync_8192_tflops"})
    EXPECT_TRUE(names.contains(name)) << name;
  EXPECT_EQ(told.size(), names.size());
  // What takes no search does not wait for it.
  const auto at = [&](const char* name) { return std::find(told.begin(), told.end(), name); };
  EXPECT_LT(at("cuda_host_us_per_step"), at("cuda_beam_matmul_8192_s"));
  std::set<std::string> times;
  for (const DeviceTimes& time : measured->times) {
    EXPECT_GT(time.seconds, 0) << time.name;
    EXPECT_GT(time.seconds_nobeam, 0) << time.name;
    EXPECT_TRUE(time.searched) << time.name;
    if (time.name != "matmul_bf16_mma_sync") times.insert(time.name);
  }
  // Of f32 by three products of TF32: some bits less than 24.
  EXPECT_GT(measured->fp32_error, 0);
  EXPECT_LT(measured->fp32_error, 1e-5);
  const absl::StatusOr<std::string> said = test::OutputOf(
      absl::StrCat("python3 ", test::kBenchFolder, "/torch_gpu.py --names device"));
  ASSERT_TRUE(said.ok()) << said.status();
  times.insert("matmul_fp32_error");
  EXPECT_EQ((std::set<std::string>(absl::StrSplit(*said, '\n', absl::SkipEmpty()))), times);
}

TEST(GpuDeviceFigures, AnErrorThatIsNoNumber_IsNotOverwritten) {
  constexpr int64_t kSide = 32;
  const auto bytes = [](const std::vector<float>& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4);
  };
  const std::string ones = bytes(std::vector<float>(kSide * kSide, 1));
  std::vector<float> results(kSide * kSide, kSide);
  results[5] = kSide + 1;
  const auto error = LargestError(ones, ones, bytes(results), kSide);
  ASSERT_TRUE(error.ok()) << error.status();
  EXPECT_DOUBLE_EQ(*error, 1.0 / kSide);
  for (const float wrong : {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity()}) {
    results[0] = wrong;  // finite ones are behind it
    const auto refused = LargestError(ones, ones, bytes(results), kSide);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInternal) << refused.status();
  }
}

TEST(GpuDeviceFigures, AStreamHasItsBytes_OrHalfOfTheMemory) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  EXPECT_EQ(StreamRows(1, 4096, 4 * kGiB, 80 * kGiB), 1 << 18);
  EXPECT_EQ(StreamRows(2, 4096, 4 * kGiB, 80 * kGiB), 1 << 17);
  EXPECT_EQ(StreamRows(3, 4096, 4 * kGiB, 80 * kGiB), 1 << 17);
  EXPECT_EQ(StreamRows(7, 4096, 4 * kGiB, 80 * kGiB), 1 << 16);
  EXPECT_EQ(StreamRows(7, 4096, 4 * kGiB, 8 * kGiB), 1 << 15);
  EXPECT_EQ(StreamRows(1, 4096, 4 * kGiB, 0), 1 << 18) << "where the memory is not known";
}

}  // namespace
}  // namespace outboard::bench
