// The figures of a GPU, at small sizes on the tests' own driver: that each is measured.
#include "tests/bench/gpu_device_figures.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <set>

#include "base/check.h"
#include "runtime/devices.h"

namespace outboard::bench {
namespace {

TEST(GpuDeviceFigures, EachIsMeasured) {
  setenv("OUTBOARD_CUDA_DRIVER", FAKE_CUDA, 1);
  setenv("OUTBOARD_FAKE_CUDA_RUNS", "1", 1);
  setenv("OUTBOARD_FAKE_CUDA_MIB", "64", 1);
  const auto device = ValueOrDie(runtime::MakeDevice(std::string(runtime::kCuda), {}));
  const auto measured = MeasureGpuDevice(*device, {.copy_bytes = 1 << 16,
                                                   .stream_rows = 8,
                                                   .stream_columns = 64,
                                                   .product = 64,
                                                   .kernels = 3,
                                                   .repeats = 2,
                                                   .beam_width = 1});
  ASSERT_TRUE(measured.ok()) << measured.status();
  std::set<std::string> names;
  for (const DeviceFigure& figure : measured->figures) {
    EXPECT_GT(figure.value, 0) << figure.name;
    EXPECT_TRUE(names.insert(figure.name).second) << figure.name;
  }
  for (const char* const name :
       {"cuda_upload_gb_per_s", "cuda_park_gb_per_s", "cuda_scrub_s", "cuda_snapshot_slowdown",
        "cuda_stream_ratio_adamw", "cuda_graph_us_per_kernel", "cuda_host_us_per_step",
        "cuda_beam_matmul_64_s"})
    EXPECT_TRUE(names.contains(name)) << name;
  std::set<std::string> times;
  for (const DeviceTimes& time : measured->times) {
    EXPECT_GT(time.seconds, 0) << time.name;
    EXPECT_TRUE(times.insert(time.name).second) << time.name;
  }
  for (const char* const name : {"matmul_bf16", "matmul_bf16_nobeam", "matmul_fp8_nobeam"})
    EXPECT_TRUE(times.contains(name)) << name;
}

}  // namespace
}  // namespace outboard::bench
