// The join test of a node passes on a device that works, and says what is wrong with one that does
// not (worker/devices/join_test.h).
#include "worker/devices/join_test.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/support/device.h"
#include "worker/compile/in_process_compiler.h"
#include "worker/devices/device_rates.h"
#include "worker/engine/compiled_engine.h"

namespace outboard::worker {
namespace {

class JoinTestTest : public ::testing::Test {
 protected:
  // Flips a bit of what is read of the device the `number`-th time.
  JoinTestOptions Fault(int number) {
    return {.memory_bytes = int64_t{48} << 20,
            .planted = [this, number](std::span<std::byte> read) {
              if (++reads_ == number) read[read.size() / 2] ^= std::byte{0x40};
            }};
  }
  int reads_ = 0;
  InProcessCompiler compiler_{{.target = test::DeviceTarget()}};
  const std::unique_ptr<Engine> engine_ =
      MakeCompiledEngine(&compiler_, test::MakeDevice(), {});
};

TEST_F(JoinTestTest, ADeviceThatWorks_Passes) {
  const absl::Status passed = TestDevice(*engine_, Fault(0));
  EXPECT_TRUE(passed.ok()) << passed;
  EXPECT_EQ(reads_, 2 + 3);  // two products, three pieces of memory
}

TEST_F(JoinTestTest, EachFault_IsFound_AndSaid) {
  for (int number = 1; number <= 5; ++number) {
    reads_ = 0;
    const absl::Status failed = TestDevice(*engine_, Fault(number));
    EXPECT_EQ(failed.code(), absl::StatusCode::kFailedPrecondition) << number;
    const std::string message(failed.message());
    EXPECT_NE(message.find(number <= 2 ? "a product of " : "the memory: word "), std::string::npos)
        << message;
    EXPECT_NE(message.find("expected "), std::string::npos) << message;
  }
}

TEST(MeasuringProcess, WhatItSays_ComesBack) {
  const auto run = [](const std::string& script, const std::string& what) {
    return MeasureDevice({"/bin/sh", "-c", script}, {}, {}, kTestWithin, what);
  };
  EXPECT_EQ(run("printf 'gflops=0 memory_gb_per_s=5\\n'", kTestAlone)->memory_gb_per_s(), 5);
  EXPECT_FALSE(run("printf 'gflops=0 memory_gb_per_s=5\\n'", kTestAndRates).ok());
  const auto faulty = run("printf 'fault: the memory\\n'; exit 3", kTestAlone);
  EXPECT_EQ(faulty.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(faulty.status().message(), "the memory");
  EXPECT_EQ(run("printf 'gflops=0 memory_gb_per_s=5\\n'; exit 3", kTestAlone).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(FaultLine("x"), "fault: x\n");
}

}  // namespace
}  // namespace outboard::worker
