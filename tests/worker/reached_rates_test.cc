// What a device reaches is measured on a processor, and on a GPU whose driver is the tests' own: in
// small sizes, of which the times say nothing.
#include "worker/devices/reached_rates.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <memory>
#include <string>

#include "base/check.h"
#include "runtime/devices.h"
#include "tests/support/paths.h"
#include "worker/compile/in_process_compiler.h"
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

INSTANTIATE_TEST_SUITE_P(Devices, ReachedRatesTest, testing::Values("cpu", "cuda"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace outboard::worker
