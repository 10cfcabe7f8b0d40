// What a device reaches is measured on a processor, and on a GPU whose driver is the tests' own: in
// small sizes, of which the times say nothing. And what a worker does with it when it starts.
#include "worker/devices/reached_rates.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "runtime/devices.h"
#include "tests/support/paths.h"
#include "worker/compile/in_process_compiler.h"
#include "worker/devices/device_rates.h"
#include "worker/devices/worker_devices.h"
#include "worker/engine/compiled_engine.h"
#include "worker/engine/device_target.h"

namespace outboard::worker {
namespace {

constexpr RateSizes kSmall = {.product_min = 32,
                              .product_max = 64,
                              .array_min = 1 << 13,
                              .array_max = 1 << 15,
                              .runs = 2,
                              .runs_s = 0};

class ReachedRatesTest : public testing::TestWithParam<std::string> {
 protected:
  ReachedRatesTest() {
    setenv("OUTBOARD_CUDA_DRIVER", test::kFakeCuda, 1);
    setenv("OUTBOARD_FAKE_CUDA_RUNS", "1", 1);
    setenv("OUTBOARD_FAKE_CUDA_MIB", "64", 1);
    auto device = ValueOrDie(runtime::MakeDevice(GetParam(), {}));
    compiler_ = std::make_unique<InProcessCompiler>(
        CompileOptions{.target = TargetOfDevice(device->properties())});
    engine_ = MakeCompiledEngine(compiler_.get(), std::move(device), {});
  }

  std::unique_ptr<InProcessCompiler> compiler_;
  std::unique_ptr<Engine> engine_;
};

TEST_P(ReachedRatesTest, BothAreMeasured) {
  const auto rates = ReachedRates(*engine_, kSmall);
  ASSERT_TRUE(rates.ok()) << rates.status();
  EXPECT_GT(rates->gflops(), 0);
  EXPECT_LT(rates->gflops(), 1e6);
  EXPECT_GT(rates->memory_gb_per_s(), 0);
  EXPECT_LT(rates->memory_gb_per_s(), 1e6);
}

// Beside a join test.
TEST_P(ReachedRatesTest, WithoutProducts_TheBandwidthAlone) {
  RateSizes sizes = kSmall;
  sizes.product_max = 0;
  const auto rates = ReachedRates(*engine_, sizes);
  ASSERT_TRUE(rates.ok()) << rates.status();
  EXPECT_EQ(rates->gflops(), 0);
  EXPECT_GT(rates->memory_gb_per_s(), 0);
}

// Not a figure of what was done until then.
TEST_P(ReachedRatesTest, WithoutMemoryForTheArray_IsAnError) {
  RateSizes sizes = kSmall;
  sizes.array_min = sizes.array_max = int64_t{1} << 36;
  EXPECT_FALSE(ReachedRates(*engine_, sizes).ok());
}

// Two GPUs of the tests' driver, "measured" by a program that prints what it is told: first of all,
// so that a worker tells them when it joins; of a processor nothing, unless it is asked for.
class RatesAtStart : public testing::Test {
 protected:
  RatesAtStart() {
    setenv("OUTBOARD_CUDA_DRIVER", test::kFakeCuda, 1);
    setenv("OUTBOARD_FAKE_CUDA_DEVICES", "2", 1);
  }
  ~RatesAtStart() override {
    for (const char* const name : {"OUTBOARD_CUDA_DRIVER", "OUTBOARD_FAKE_CUDA_DEVICES"})
      unsetenv(name);
  }

  static proto::Register Told(const std::string& kind, const std::string& script) {
    WorkerDevices devices({.kind = kind, .count_max = 2});
    const auto all_cores = [](uint32_t) { return std::vector<int>(); };
    devices.MeasureAtStart({"/bin/sh", "-c", script}, all_cores, std::chrono::seconds(10));
    proto::Register entry;
    devices.Describe(all_cores, entry);
    return entry;
  }
};

TEST_F(RatesAtStart, OfEachGpu_AreToldToTheGateway) {
  const proto::Register entry =
      Told("cuda", "echo gflops=5$CUDA_VISIBLE_DEVICES memory_gb_per_s=7");
  ASSERT_EQ(entry.devices_size(), 2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(entry.devices(i).rates().gflops(), 50 + i);
    EXPECT_EQ(entry.devices(i).rates().memory_gb_per_s(), 7);
  }
}

TEST_F(RatesAtStart, WhereAGpuIsNotMeasured_ThereAreNone) {
  const proto::Register entry = Told(
      "cuda", "[ $CUDA_VISIBLE_DEVICES = 1 ] && exit 1; echo gflops=5 memory_gb_per_s=7");
  ASSERT_EQ(entry.devices_size(), 2);
  for (const proto::Device& device : entry.devices()) EXPECT_FALSE(device.has_rates());
}

TEST_F(RatesAtStart, OfAProcessor_AreNotMeasuredUnasked) {
  const proto::Register entry = Told("cpu", "echo gflops=5 memory_gb_per_s=7");
  ASSERT_EQ(entry.devices_size(), 2);
  for (const proto::Device& device : entry.devices()) EXPECT_FALSE(device.has_rates());
}

TEST_F(RatesAtStart, OfADriverThatIsNamed_AreMeasuredIfAsked) {
  EXPECT_FALSE(MeasuresGpusAtStart());
  setenv("OUTBOARD_MEASURE", "1", 1);
  EXPECT_TRUE(MeasuresGpusAtStart());
  unsetenv("OUTBOARD_CUDA_DRIVER");
  setenv("OUTBOARD_MEASURE", "0", 1);
  EXPECT_FALSE(MeasuresGpusAtStart());
  unsetenv("OUTBOARD_MEASURE");
  EXPECT_TRUE(MeasuresGpusAtStart());
}

INSTANTIATE_TEST_SUITE_P(Devices, ReachedRatesTest, testing::Values("cpu", "cuda"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace outboard::worker
