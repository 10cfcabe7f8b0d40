// The CUDA device over the tests' driver that runs PTX: how texts become modules, how long modules
// live, and what its clock says.
#include <dlfcn.h>
#include <stdlib.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/cuda/api.h"
#include "runtime/cuda/device.h"
#include "tests/support/paths.h"

namespace outboard::cuda {
namespace {

using runtime::Device;
using runtime::DeviceAddress;
using runtime::DeviceBuffer;
using runtime::DeviceKernel;

// Adds `added` to the u32 at its parameter; `before` is what it does first.
CompiledKernel Adding(int added, const std::string& before = "") {
  CompiledKernel kernel;
  kernel.form = CompiledKernel::Form::kPtx;
  kernel.symbol = absl::StrCat("add_", added);
  kernel.tasks = 1;
  kernel.buffer_count = 1;
  kernel.threads = {128, 1, 1};
  kernel.object = absl::StrCat(
      ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry ", kernel.symbol,
      "(.param .u64 sum)\n.maxntid 128, 1, 1\n.minnctapersm 1\n{\n  .reg .pred %p<1>;\n",
      "  .reg .b32 %r<2>;\n  .reg .b64 %rd<1>;\n", before,
      "  mov.u32 %r0, %tid.x;\n  setp.ne.u32 %p0, %r0, 0;\n  @%p0 bra DONE;\n",
      "  ld.param.u64 %rd0, [sum];\n  ld.global.u32 %r1, [%rd0];\n  add.u32 %r1, %r1, ", added,
      ";\n  st.global.u32 [%rd0], %r1;\nDONE:\n  ret;\n}\n");
  return kernel;
}
// With what relocatable code does without.
CompiledKernel AddingWithFewRegisters(int added) {
  return Adding(added, "  setmaxnreg.dec.sync.aligned.u32 24;\n");
}

class MemoryLinkedCode final : public runtime::LinkedCodeStore {
 public:
  std::vector<std::string> Find(std::span<const std::string> keys) override {
    asked += keys.size();
    std::vector<std::string> codes;
    for (const std::string& key : keys) codes.push_back(known[key]);
    return codes;
  }
  void Add(std::span<const runtime::LinkedCode> linked) override {
    for (const runtime::LinkedCode& one : linked) known[one.key] = one.code;
  }
  std::map<std::string, std::string> known;
  size_t asked = 0;
};

class CudaDeviceTest : public ::testing::Test {
 protected:
  // Before the driver is loaded, which reads them once.
  static void SetUpTestSuite() {
    setenv("OUTBOARD_FAKE_CUDA_MIB", "64", 1);
    api_ = new absl::StatusOr<DriverApi>(LoadApiFrom(test::kFakeCuda));
    ASSERT_TRUE(api_->ok()) << api_->status();
  }
  void SetUp() override {
    auto device = MakeCudaDeviceOf(**api_, {});
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    auto sum = device_->Allocate(4);
    ASSERT_TRUE(sum.ok()) << sum.status();
    sum_.emplace(*std::move(sum));
    ASSERT_TRUE(device_->Fill(sum_->address(), 0, 4).ok());
  }
  void TearDown() override {
    sum_.reset();
    device_.reset();
    EXPECT_EQ(Reports(), "");
  }

  template <typename F>
  static F* Symbol(const char* name) {
    return reinterpret_cast<F*>(dlsym(dlopen(test::kFakeCuda, RTLD_NOW | RTLD_NOLOAD), name));
  }
  static std::string Reports() {
    std::string text(1 << 12, '\0');
    Symbol<int(char*, size_t)>("outboard_fake_cuda_reports")(text.data(), text.size());
    return text.substr(0, text.find('\0'));
  }
  static uint64_t Links() {
    return Symbol<unsigned long long(const char*)>("outboard_fake_cuda_counter")("links");
  }
  std::unique_ptr<DeviceKernel> Loaded(const CompiledKernel& compiled) {
    auto kernel = device_->Load(compiled);
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    return *std::move(kernel);
  }
  absl::Status Launch(const DeviceKernel& kernel) {
    const DeviceAddress slots[] = {sum_->address()};
    return device_->Launch(kernel, slots, {});
  }
  uint32_t Sum() {
    uint32_t sum = 0;
    const absl::Status status = device_->Download(sum_->address(), 4, &sum);
    EXPECT_TRUE(status.ok()) << status;
    return sum;
  }

  static inline absl::StatusOr<DriverApi>* api_ = nullptr;
  std::unique_ptr<Device> device_;
  std::optional<DeviceBuffer> sum_;
};

// ---- modules ------------------------------------------------------------------------------------

TEST_F(CudaDeviceTest, WhatRelocatableCodeDoesWithout_IsLoadedWholeAndNotStored) {
  MemoryLinkedCode store;
  device_->KeepLinked(&store);
  const CompiledKernel several[] = {AddingWithFewRegisters(1), Adding(20),
                                    AddingWithFewRegisters(300), Adding(4000)};
  const uint64_t links = Links();
  std::vector<runtime::LoadedKernel> loaded = device_->LoadAll(several);
  for (const runtime::LoadedKernel& kernel : loaded) {
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    EXPECT_TRUE(Launch(**kernel).ok());
  }
  EXPECT_EQ(Sum(), 4321u);
  EXPECT_EQ(Links(), links + 2);
  EXPECT_EQ(store.asked, 2u);
  EXPECT_EQ(store.known.size(), 2u);
  // As another process does, later: what is linked comes from the store.
  loaded.clear();
  ASSERT_TRUE(device_->Synchronize().ok());
  loaded = device_->LoadAll(several);
  for (const runtime::LoadedKernel& kernel : loaded) {
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    EXPECT_TRUE(Launch(**kernel).ok());
  }
  EXPECT_EQ(Sum(), 8642u);
  EXPECT_EQ(Links(), links + 2);
  loaded.clear();
}

TEST_F(CudaDeviceTest, ATextThatIsRefusedWhole_IsNamedWithTheCompilersWords) {
  CompiledKernel kernel = AddingWithFewRegisters(1);
  kernel.object.replace(kernel.object.find("ld.global"), 9, "ld.nowhere");
  const absl::Status status = device_->Load(kernel).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  for (const char* const word :
       {"kernel add_1", "does not take the PTX", "cuModuleLoadDataEx", "nowhere"})
    EXPECT_TRUE(absl::StrContains(status.message(), word)) << word << " in " << status;
  Symbol<int(const char*, int)>("outboard_fake_cuda_fault")("ptx", 1);
  EXPECT_FALSE(device_->Load(AddingWithFewRegisters(1)).ok());
  EXPECT_TRUE(device_->health().ok());
  EXPECT_TRUE(device_->Load(AddingWithFewRegisters(1)).ok());
}

// As idle search does it: better kernels take the place of two, which go. The graph's nodes are as
// they were made, whatever replaces them in what is launched.
TEST_F(CudaDeviceTest, ModulesOfAGraph_LiveAsLongAsIt) {
  std::unique_ptr<DeviceKernel> kernels[] = {Loaded(Adding(1)), Loaded(AddingWithFewRegisters(20))};
  std::unique_ptr<runtime::LaunchRecord> record;
  const auto run = [&] {
    const DeviceAddress slots[] = {sum_->address()};
    const runtime::KernelLaunch launches[] = {{kernels[0].get(), slots}, {kernels[1].get(), slots}};
    EXPECT_TRUE(device_->LaunchAll(launches, {}, record).ok());
  };
  for (int i = 0; i < 3; ++i) run();
  EXPECT_EQ(Sum(), 63u);
  for (const int added : {300, 4000}) {
    kernels[0] = Loaded(Adding(added));
    kernels[1] = Loaded(Adding(10 * added));
    run();
    ASSERT_TRUE(device_->Synchronize().ok());  // modules that nobody uses go
    EXPECT_EQ(Reports(), "");
    run();
  }
  EXPECT_EQ(Sum(), 63u + 2 * 3300u + 2 * 44000u);
  for (auto& kernel : kernels) kernel = nullptr;
  record.reset();
  ASSERT_TRUE(device_->Synchronize().ok());
  EXPECT_EQ(Reports(), "");
}

// ---- time ---------------------------------------------------------------------------------------

// An idle device takes what is queued first at once, and then waits for the host's next call.
TEST_F(CudaDeviceTest, Time_HasNothingOfTheHostsCalls) {
  const auto kernel = Loaded(Adding(1));
  for (const int launches : {1, 3}) {
    std::vector<double> times;
    for (const int call_us : {0, 3, 8}) {
      Symbol<void(int)>("outboard_fake_cuda_call_us")(call_us);
      const absl::StatusOr<double> seconds = device_->Time([&] {
        absl::Status status = absl::OkStatus();
        for (int i = 0; i < launches; ++i) status.Update(Launch(*kernel));
        return status;
      });
      ASSERT_TRUE(seconds.ok()) << seconds.status();
      times.push_back(*seconds);
    }
    Symbol<void(int)>("outboard_fake_cuda_call_us")(0);
    EXPECT_GT(times[0], 1e-6 * launches);
    for (const double time : times) EXPECT_NEAR(time, times[0], 1e-9) << launches;
  }
}

}  // namespace
}  // namespace outboard::cuda
