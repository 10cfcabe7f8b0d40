// The small driver of fake_cuda_driver.cc, as tests see it: its counters and switches, and kernels
// that it runs.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "compiler/compiled_kernel.h"
#include "gtest/gtest.h"
#include "runtime/cuda/api.h"
#include "runtime/cuda/device.h"
#include "tests/support/paths.h"

namespace outboard::cuda {

template <typename F>
F* Symbol(const char* name) {
  void* const library = dlopen(test::kRecordingCudaDriver, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr);
  return reinterpret_cast<F*>(dlsym(library, name));
}
inline void Set(const char* name, int64_t value) {
  Symbol<void(const char*, int64_t)>("outboard_fake_set")(name, value);
}
inline int64_t Get(const char* name) {
  return Symbol<int64_t(const char*)>("outboard_fake_get")(name);
}

// value = 3 * value + 1, or + VAR 0.
inline CompiledKernel Kernel(const std::string& symbol = "k", bool reads_vars = false) {
  CompiledKernel kernel;
  kernel.form = CompiledKernel::Form::kPtx;
  kernel.symbol = symbol;
  kernel.tasks = 1;
  kernel.buffer_count = 1;
  kernel.reads_vars = reads_vars;
  kernel.object = ".visible .entry " + symbol + "(.param .u64 a" +
                  (reads_vars ? ", .param .u64 vars)" : ")") + " { ret; }";
  return kernel;
}

// As it is when a process begins.
inline void ResetDriver() {
  for (const char* const name :
       {"well", "faults", "refuse memory", "lose", "refuse graph", "unpinnable", "old devices",
        "silent device", "meet links", "links met", "no room for clusters"})
    Set(name, 0);
  Set("version", 12040);
  Set("devices", 1);
  Set("memory", 64 << 20);
  Set("major", 9);
}

// A test with a device of that driver, to which nothing wrong is done.
class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override { ResetDriver(); }
  void TearDown() override { EXPECT_EQ(Get("faults"), 0); }

  std::unique_ptr<runtime::Device> Make(int64_t memory_bytes_max = 0,
                                        std::function<void(std::string_view)> warn = nullptr) {
    const absl::StatusOr<DriverApi> api = LoadApiFrom(test::kRecordingCudaDriver);
    EXPECT_TRUE(api.ok()) << api.status();
    auto device = MakeCudaDeviceOf(
        *api, {.memory_bytes_max = memory_bytes_max, .warn = std::move(warn)});
    EXPECT_TRUE(device.ok()) << device.status();
    return *std::move(device);
  }

  static runtime::DeviceBuffer Holding(runtime::Device& device, const std::string& bytes) {
    runtime::DeviceBuffer buffer = *device.Allocate(static_cast<int64_t>(bytes.size()));
    EXPECT_TRUE(device.Upload(buffer.address(), bytes).ok());
    return buffer;
  }
  static int64_t Value(runtime::Device& device, const runtime::DeviceBuffer& buffer) {
    int64_t value = -1;
    const absl::Status status = device.Download(buffer.address(), 8, &value);
    EXPECT_TRUE(status.ok()) << status;
    return value;
  }
};

}  // namespace outboard::cuda
