// What a GPU runs at, by a management library of the tests' own (tests/gpu/driver/fake_nvml.cc).
#include <dlfcn.h>
#include <stdlib.h>

#include <chrono>
#include <string>

#include "gtest/gtest.h"
#include "runtime/cuda/gpu_state.h"
#include "tests/support/paths.h"

namespace outboard::cuda {
namespace {

constexpr char kBusId[] = "0000:1B:00.0";

void ExpectNone(const absl::Status& status, const std::string& part) {
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  const std::string text(status.message());
  EXPECT_NE(text.find(part), text.npos) << text;
  EXPECT_EQ(text.find('\n'), text.npos) << text;
}

TEST(GpuState, Clocks_PowerAndTemperatureAreTheLibrarys) {
  const auto state = GpuState::Open(test::kFakeNvml, kBusId);
  ASSERT_TRUE(state.ok()) << state.status();
  const auto clocks = reinterpret_cast<void (*)(const char*)>(
      dlsym(dlopen(test::kFakeNvml, RTLD_NOW), "outboard_fake_nvml_clocks"));
  clocks("1410,705");
  for (const int mhz : {1410, 705, 705}) {
    const auto read = state->Read();
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->clock_mhz, mhz);
    EXPECT_EQ(read->power_mw, 402'500);
    EXPECT_EQ(read->celsius, 58);
  }
}

TEST(GpuState, AReadingThatCanBeNone_IsNotTold) {
  const auto state = GpuState::Open(test::kFakeNvml, kBusId);
  ASSERT_TRUE(state.ok()) << state.status();
  reinterpret_cast<void (*)(const char*)>(dlsym(
      dlopen(test::kFakeNvml, RTLD_NOW), "outboard_fake_nvml_clocks"))("4294967295,300000000,1980");
  for (const int mhz : {0, 0, 1980}) {
    const auto read = state->Read();
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->clock_mhz, mhz);
  }
}

TEST(GpuState, WhatIsMissing_IsOneLine) {
  ExpectNone(GpuState::Open("libno_such_library.so.1", kBusId).status(),
             "no library: libno_such_library.so.1");
  ExpectNone(GpuState::Open(test::kFakeNvml, "0000:2C:00.0").status(),
             "GPU 0000:2C:00.0: Not Found");
  setenv("OUTBOARD_FAKE_NVML_FAILS", "1", 1);
  ExpectNone(GpuState::Open(test::kFakeNvml, kBusId).status(), "nvmlInit: Not Supported");
  unsetenv("OUTBOARD_FAKE_NVML_FAILS");
  // A library of another kind.
  ExpectNone(GpuState::Open("libm.so.6", kBusId).status(), "has no function nvmlInit_v2");
}

TEST(GpuState, ALibraryThatDoesNotAnswer_IsGivenUpForGood) {
  for (const char* const function : {"nvmlInit_v2", "nvmlDeviceGetClockInfo"}) {
    setenv("OUTBOARD_FAKE_NVML_HANGS", function, 1);
    StateReader reader(test::kFakeNvml, kBusId, std::chrono::milliseconds(50));
    ExpectNone(reader.Read().status(), "no answer within 50 ms");
    unsetenv("OUTBOARD_FAKE_NVML_HANGS");
    ExpectNone(reader.Read().status(), "no answer within 50 ms");
  }
  StateReader reader(test::kFakeNvml, kBusId);
  EXPECT_TRUE(reader.Read().ok());
}

TEST(GpuState, TheLibrary_IsTheOneThatIsNamed) {
  unsetenv("OUTBOARD_NVML");
  EXPECT_EQ(ManagementLibrary(), "libnvidia-ml.so.1");
  setenv("OUTBOARD_NVML", test::kFakeNvml, 1);
  EXPECT_EQ(ManagementLibrary(), test::kFakeNvml);
  unsetenv("OUTBOARD_NVML");
}

}  // namespace
}  // namespace outboard::cuda
