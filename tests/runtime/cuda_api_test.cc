// The CUDA device over a small driver of the tests' own (fake_cuda_driver.cc): how a driver is
// found, what becomes of its errors, and which calls it gets. What kernels compute is the business
// of other tests.
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/cuda/api.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/nccl_stream.h"
#include "tests/runtime/fake_cuda_driver.h"
#include "tests/support/paths.h"

namespace outboard::cuda {
namespace {

using runtime::Device;
using runtime::DeviceAddress;
using runtime::DeviceBuffer;
using runtime::DeviceKernel;

testing::AssertionResult Has(const absl::Status& status, absl::StatusCode code,
                             const std::vector<std::string>& words) {
  if (status.code() != code) return testing::AssertionFailure() << status;
  for (const std::string& word : words)
    if (std::string(status.message()).find(word) == std::string::npos)
      return testing::AssertionFailure() << "no \"" << word << "\" in: " << status;
  if (std::string(status.message()).find('\n') != std::string::npos)
    return testing::AssertionFailure() << "more than a line: " << status;
  return testing::AssertionSuccess();
}

// ---- finding a driver ---------------------------------------------------------------------------

TEST_F(CudaTest, NoDriver_IsOneLineWithWhatIsNeeded) {
  EXPECT_TRUE(Has(LoadApiFrom("libno_such_driver.so.1").status(), absl::StatusCode::kUnimplemented,
                  {"no driver", "libno_such_driver.so.1", "12.0 or newer"}));
}

TEST_F(CudaTest, OldDriver_SaysItsVersionAndTheOneNeeded) {
  Set("version", 11040);
  EXPECT_TRUE(Has(LoadApiFrom(test::kRecordingCudaDriver).status(),
                  absl::StatusCode::kUnimplemented, {"11.4", "12.0 or newer"}));
}

TEST_F(CudaTest, MissingFunction_IsNamed) {
  EXPECT_TRUE(Has(LoadApiFrom(test::kPartialCudaDriver).status(), absl::StatusCode::kUnimplemented,
                  {"cuGraphLaunch", "12.0 or newer"}));
}

TEST_F(CudaTest, NoDevice_IsOneLine) {
  Set("devices", 0);
  EXPECT_TRUE(Has(LoadApiFrom(test::kRecordingCudaDriver).status(),
                  absl::StatusCode::kUnimplemented, {"no device", "12.4"}));
}

TEST_F(CudaTest, OldDevice_SaysItsCapabilityAndTheOneNeeded) {
  Set("major", 7);
  EXPECT_TRUE(Has(LoadApiFrom(test::kRecordingCudaDriver).status(),
                  absl::StatusCode::kUnimplemented, {"7.0", "8.0"}));
}

TEST_F(CudaTest, Driver_IsFoundWithoutWhatIsOptional) {
  const absl::StatusOr<DriverApi> api = LoadApiFrom(test::kRecordingCudaDriver);
  ASSERT_TRUE(api.ok()) << api.status();
  EXPECT_EQ(api->version, 12040);
  EXPECT_FALSE(api->build.empty());
  EXPECT_NE(api->cuGraphLaunch, nullptr);
  EXPECT_EQ(api->cuTensorMapEncodeTiled, nullptr);
  EXPECT_EQ(Describe(*api, CUDA_ERROR_OUT_OF_MEMORY),
            "CUDA_ERROR_OUT_OF_MEMORY (2): so the fake driver says");
}

TEST_F(CudaTest, Properties_AreTheDevices) {
  const auto device = Make();
  const runtime::DeviceProperties& properties = device->properties();
  EXPECT_EQ(properties.kind, "cuda");
  EXPECT_EQ(properties.name, "Fake GPU");
  EXPECT_EQ(properties.compute_units, 132);
  EXPECT_EQ(properties.compute_capability, 90);
  EXPECT_EQ(properties.memory_bytes, 64 << 20);
  EXPECT_EQ(properties.shared_bytes, 227 << 10);
  EXPECT_EQ(properties.block_threads_max, 1024);
  EXPECT_TRUE(properties.fp16 && properties.fp64 && !properties.is_processor);
  EXPECT_TRUE(properties.records_launches);
  EXPECT_GT(device->memory_bytes_max(), 32 << 20);
  EXPECT_LT(device->memory_bytes_max(), 64 << 20);
}

// ---- memory -------------------------------------------------------------------------------------

TEST_F(CudaTest, FreshMemory_HoldsNothingOfOthers) {
  const auto device = Make();
  const DeviceBuffer buffer = *device->Allocate(100000);  // 0xAA, by the fake driver
  std::string bytes(100000, 'x');
  ASSERT_TRUE(device->Download(buffer.address(), 100000, bytes.data()).ok());
  EXPECT_EQ(bytes, std::string(100000, '\0'));
}

TEST_F(CudaTest, Copies_LargerThanAPinnedPiece) {
  const auto device = Make();
  std::string bytes(13'000'001, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 + i / 4096);
  const DeviceBuffer buffer = *device->Allocate(static_cast<int64_t>(bytes.size()));
  {
    std::string source = bytes;
    ASSERT_TRUE(device->Upload(buffer.address(), source).ok());
    std::ranges::fill(source, 'x');  // read already, though nothing has run
  }
  std::string whole(bytes.size(), '\0'), pieces;
  ASSERT_TRUE(device->Download(buffer.address(), buffer.bytes(), whole.data()).ok());
  EXPECT_TRUE(whole == bytes);
  ASSERT_TRUE(device
                  ->Download(buffer.address(), buffer.bytes(), 1'000'000,
                             [&](std::string_view piece) {
                               pieces += piece;
                               return absl::OkStatus();
                             })
                  .ok());
  EXPECT_TRUE(pieces == bytes);
  // Within a buffer, by an address of the device's own.
  char byte = 0;
  ASSERT_TRUE(device->Download(buffer.address() + 4'999'999, 1, &byte).ok());
  EXPECT_EQ(byte, bytes[4'999'999]);
}

// The same bytes through ordinary memory, and whoever made the device hears of it, once.
TEST_F(CudaTest, Copies_WithoutPinnedMemory_AreToldOnce) {
  std::vector<std::string> lines;
  const auto warn = [&](std::string_view line) { lines.emplace_back(line); };
  {
    const auto device = Make(0, warn);
    EXPECT_EQ(Value(*device, Holding(*device, "12345678")), 0x3837363534333231);
    EXPECT_TRUE(lines.empty()) << "there is pinned memory";
  }
  Set("unpinnable", 1);
  const auto device = Make(0, warn);
  const std::string bytes(9'000'000, 'b');
  std::string back(bytes.size(), '\0');
  const DeviceBuffer buffer = Holding(*device, bytes);
  ASSERT_TRUE(device->Download(buffer.address(), buffer.bytes(), back.data()).ok());
  EXPECT_EQ(back, bytes);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("to pin for copies to and from Fake GPU"), std::string::npos) << lines[0];
  EXPECT_EQ(lines[0].find('\n'), std::string::npos);
}

TEST_F(CudaTest, NoMemory_IsAnErrorOfTheRequestAlone) {
  const auto device = Make();
  const DeviceBuffer kept = Holding(*device, "12345678");
  Set("refuse memory", 1);
  EXPECT_TRUE(Has(device->Allocate(1 << 20).status(), absl::StatusCode::kResourceExhausted,
                  {"1048576", "Fake GPU", "free of 67108864"}));
  EXPECT_TRUE(device->health().ok());
  EXPECT_TRUE(device->Allocate(1 << 20).ok());
  // What is kept for reuse goes before a request fails.
  { const auto freed = device->Allocate(5 << 20); }
  Set("refuse memory", 1);
  EXPECT_TRUE(device->Allocate(6 << 20).ok());
  EXPECT_EQ(Value(*device, kept), 0x3837363534333231);
}

TEST_F(CudaTest, Device_GivesEverythingBack) {
  const int64_t memory = Get("memory blocks"), pinned = Get("pinned blocks");
  {
    const auto device = Make();
    const DeviceBuffer buffer = Holding(*device, "12345678");
    EXPECT_EQ(Value(*device, buffer), 0x3837363534333231);
    EXPECT_GT(Get("memory blocks"), memory);
  }
  EXPECT_EQ(Get("memory blocks"), memory);
  EXPECT_EQ(Get("pinned blocks"), pinned);
}

// As a writer of snapshots does.
TEST_F(CudaTest, Downloads_OnTwoThreads) {
  const auto device = Make();
  const std::string held(9'000'000, 'h');
  const DeviceBuffer buffer = Holding(*device, held), other = Holding(*device, "........");
  std::thread reader([&] {
    for (int i = 0; i < 5; ++i) {
      std::string got(held.size(), '\0');
      EXPECT_TRUE(device->Download(buffer.address(), buffer.bytes(), got.data()).ok());
      EXPECT_TRUE(got == held);
    }
  });
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(device->Fill(other.address(), static_cast<unsigned char>(i), 8).ok());
    EXPECT_EQ(Value(*device, other), i * 0x0101010101010101);
  }
  reader.join();
}

// ---- kernels ------------------------------------------------------------------------------------

TEST_F(CudaTest, EqualTexts_AreLinkedOnce) {
  const auto device = Make();
  const int64_t before = Get("modules");
  const CompiledKernel both[] = {Kernel("one"), Kernel("two"), Kernel("one")};
  auto loaded = device->LoadAll(both);
  ASSERT_TRUE(loaded[0].ok() && loaded[1].ok() && loaded[2].ok()) << loaded[0].status();
  EXPECT_EQ(Get("modules"), before + 2);
  const auto again = device->Load(Kernel("two"));
  EXPECT_EQ(Get("modules"), before + 2);
  loaded.clear();
  ASSERT_TRUE(device->Synchronize().ok());
  EXPECT_TRUE(device->Load(Kernel("one")).ok());  // it went with its last kernel
  EXPECT_EQ(Get("modules"), before + 3);
}

TEST_F(CudaTest, SeveralTexts_AreLinkedOnSeveralThreads) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "this machine has one core";
  const auto device = Make();
  Set("meet links", 2);  // each waits within the driver for another one
  const CompiledKernel four[] = {Kernel("one"), Kernel("two"), Kernel("three"), Kernel("four")};
  for (const auto& loaded : device->LoadAll(four)) EXPECT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_GE(Get("links met"), 1);
}

class MemoryLinkedCode final : public runtime::LinkedCodeStore {
 public:
  std::vector<std::string> Find(std::span<const std::string> keys) override {
    std::vector<std::string> codes;
    for (const std::string& key : keys) codes.push_back(known[key]);
    return codes;
  }
  void Add(std::span<const runtime::LinkedCode> linked) override {
    for (const runtime::LinkedCode& one : linked) known[one.key] = one.code;
  }
  std::map<std::string, std::string> known;
};

// As another process does, later.
TEST_F(CudaTest, LinkedCode_IsLoadedWithoutLinking) {
  MemoryLinkedCode store;
  const CompiledKernel both[] = {Kernel("one"), Kernel("two")};
  {
    const auto device = Make();
    device->KeepLinked(&store);
    for (const auto& loaded : device->LoadAll(both)) EXPECT_TRUE(loaded.ok()) << loaded.status();
  }
  EXPECT_EQ(store.known.size(), 2u);
  const int64_t links = Get("links");
  {
    const auto device = Make();
    device->KeepLinked(&store);
    const auto kernel = device->LoadAll(both);
    ASSERT_TRUE(kernel[0].ok() && kernel[1].ok());
    EXPECT_EQ(Get("links"), links);
    const DeviceBuffer buffer = Holding(*device, std::string(8, '\0'));
    const DeviceAddress slots[] = {buffer.address()};
    EXPECT_TRUE(device->Launch(**kernel[1], slots, {}).ok());
    EXPECT_EQ(Value(*device, buffer), 1);
  }
  Set("version", 12060);  // of another driver nothing is known
  const auto newer = LoadApiFrom(test::kRecordingCudaDriver);
  ASSERT_TRUE(newer.ok());
  const auto device = MakeCudaDeviceOf(*newer, {});
  ASSERT_TRUE(device.ok());
  (*device)->KeepLinked(&store);
  EXPECT_TRUE((*device)->Load(both[0]).ok());
  EXPECT_EQ(Get("links"), links + 1);
}

TEST_F(CudaTest, LinkedCodeThatTheDriverRefuses_IsLinkedAnew) {
  MemoryLinkedCode store;
  const auto device = Make();
  device->KeepLinked(&store);
  EXPECT_TRUE(device->Load(Kernel()).ok());
  ASSERT_EQ(store.known.size(), 1u);
  const std::string good = store.known.begin()->second;
  store.known.begin()->second = "damaged";
  ASSERT_TRUE(device->Synchronize().ok());  // the module goes
  const int64_t links = Get("links");
  EXPECT_TRUE(device->Load(Kernel()).ok());
  EXPECT_EQ(Get("links"), links + 1);
  EXPECT_EQ(store.known.begin()->second, good);
}

// What the real linker takes is not documented: the driver may load what it does not link.
TEST_F(CudaTest, WhatTheLinkerRefuses_IsLoadedWholeAndToldOnce) {
  std::vector<std::string> lines;
  {
    MemoryLinkedCode store;
    const auto device = Make(0, [&](std::string_view line) { lines.emplace_back(line); });
    device->KeepLinked(&store);
    Set("no links", 1);
    const int64_t links = Get("links"), modules = Get("modules");
    CompiledKernel both[] = {Kernel("one"), Kernel("two")};
    for (CompiledKernel& one : both) one.object.insert(0, ".version 8.0\n");
    for (const auto& loaded : device->LoadAll(both)) EXPECT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(Get("links"), links + 2);
    EXPECT_EQ(Get("modules"), modules + 2);
    for (const auto& [key, code] : store.known) EXPECT_TRUE(code.empty());
    CompiledKernel wrong = Kernel();
    wrong.object += " nonsense";
    EXPECT_TRUE(Has(device->Load(wrong).status(), absl::StatusCode::kInternal,
                    {"line 1: nonsense"}));
    Set("no links", 0);
  }
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("no linker for sm_90a"), std::string::npos) << lines[0];
}

TEST_F(CudaTest, Refusals_NameTheKernelAndTheLimit) {
  const auto device = Make();
  CompiledKernel kernel = Kernel();
  kernel.object += " nonsense";
  EXPECT_TRUE(Has(device->Load(kernel).status(), absl::StatusCode::kInternal,
                  {"kernel k", "Fake GPU", "line 1: nonsense"}));
  kernel = Kernel();
  kernel.symbol = "other";
  EXPECT_TRUE(Has(device->Load(kernel).status(), absl::StatusCode::kNotFound, {"other"}));
  kernel = Kernel();
  kernel.threads = {1024, 2, 1};
  EXPECT_TRUE(
      Has(device->Load(kernel).status(), absl::StatusCode::kUnimplemented, {"2048", "1024"}));
  kernel.threads = {1024, 1, 1};  // the fake driver's registers have room for 512
  EXPECT_TRUE(
      Has(device->Load(kernel).status(), absl::StatusCode::kResourceExhausted, {"1024", "512"}));
  kernel.threads = {1, 1, 1};
  kernel.blocks = {1, 70000, 1};
  EXPECT_TRUE(Has(device->Load(kernel).status(), absl::StatusCode::kUnimplemented, {"70000"}));
  kernel = Kernel();
  kernel.shared_bytes = 300 << 10;
  EXPECT_TRUE(Has(device->Load(kernel).status(), absl::StatusCode::kUnimplemented, {"307200"}));
  kernel.shared_bytes = 100 << 10;  // more than without asking
  const auto loaded = device->Load(kernel);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const DeviceBuffer buffer = Holding(*device, std::string(8, '\0'));
  const DeviceAddress slots[] = {buffer.address()};
  EXPECT_TRUE(device->Launch(**loaded, slots, {}).ok());
  EXPECT_EQ(Value(*device, buffer), 1);
}

TEST_F(CudaTest, ClustersThatHaveNoRoom_AreRefused) {
  const auto device = Make();
  const int64_t asked = Get("clusters asked");
  CompiledKernel kernel = Kernel();
  EXPECT_TRUE(device->Load(kernel).ok());
  EXPECT_EQ(Get("clusters asked"), asked);  // it has none
  kernel = Kernel("of_clusters");
  kernel.object.insert(kernel.object.find('{'), ".explicitcluster\n.reqnctapercluster 8, 1, 1\n");
  kernel.blocks = {8, 1, 1};
  kernel.threads = {512, 1, 1};
  kernel.shared_bytes = 100 << 10;
  Set("no room for clusters", 1);
  EXPECT_TRUE(Has(device->Load(kernel).status(), absl::StatusCode::kUnimplemented,
                  {"of_clusters", "512 threads", "102400 bytes", "Fake GPU"}));
  EXPECT_EQ(Get("clusters asked"), asked + 1);
  const auto loaded = device->Load(kernel);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const DeviceBuffer buffer = Holding(*device, std::string(8, '\0'));
  const DeviceAddress slots[] = {buffer.address()};
  EXPECT_TRUE(device->Launch(**loaded, slots, {}).ok());
  EXPECT_EQ(Value(*device, buffer), 1);
}

// A driver of CUDA before 11.8 cannot be asked: kernels are launched as they are.
TEST_F(CudaTest, ClustersOfADriverThatCannotSay_AreLoaded) {
  absl::StatusOr<DriverApi> api = LoadApiFrom(test::kRecordingCudaDriver);
  ASSERT_TRUE(api.ok()) << api.status();
  api->cuOccupancyMaxActiveClusters = nullptr;
  const auto device = MakeCudaDeviceOf(*api, {});
  ASSERT_TRUE(device.ok()) << device.status();
  CompiledKernel kernel = Kernel("of_clusters");
  kernel.object.insert(kernel.object.find('{'), ".reqnctapercluster 8, 1, 1\n");
  Set("no room for clusters", 1);
  EXPECT_TRUE((*device)->Load(kernel).ok());
}

TEST_F(CudaTest, Vars_AreThoseOfEachLaunch) {
  const auto device = Make();
  const auto kernel = device->Load(Kernel("k", /*reads_vars=*/true));
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  const DeviceBuffer buffer = Holding(*device, std::string(8, '\0'));
  const DeviceAddress slots[] = {buffer.address()};
  const int64_t before = Get("uploads");
  for (const int64_t value : {5, 7, 7, 11}) {
    const std::vector<int64_t> vars = {value, 0, 0};
    ASSERT_TRUE(device->Launch(**kernel, slots, vars).ok());
  }
  EXPECT_EQ(Get("uploads"), before + 3);  // not for the values that are there
  EXPECT_EQ(Value(*device, buffer), ((5 * 3 + 7) * 3 + 7) * 3 + 11);
  EXPECT_EQ(device->Launch(**kernel, slots, {}).code(), absl::StatusCode::kInternal);
}

TEST_F(CudaTest, Kernel_MayGoWhileItIsQueued) {
  const auto device = Make();
  const DeviceBuffer buffer = Holding(*device, std::string(8, '\0'));
  const int64_t unloaded = Get("modules unloaded");
  {
    const auto kernel = device->Load(Kernel());
    const DeviceAddress slots[] = {buffer.address()};
    ASSERT_TRUE(device->Launch(**kernel, slots, {}).ok());
  }
  EXPECT_EQ(Get("modules unloaded"), unloaded);
  EXPECT_EQ(Value(*device, buffer), 1);
  ASSERT_TRUE(device->Synchronize().ok());
  EXPECT_EQ(Get("modules unloaded"), unloaded + 1);
}

TEST_F(CudaTest, Time_IsTheDevices) {
  const auto device = Make();
  const auto kernel = device->Load(Kernel());
  const DeviceBuffer buffer = Holding(*device, std::string(8, '\0'));
  const DeviceAddress slots[] = {buffer.address()};
  const absl::StatusOr<double> seconds = device->Time([&] {
    for (int i = 0; i < 3; ++i)
      if (absl::Status status = device->Launch(**kernel, slots, {}); !status.ok()) return status;
    return absl::OkStatus();
  });
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  EXPECT_NEAR(*seconds, 0.003, 1e-9);  // the fake driver's clock: a millisecond each
}

// ---- errors that are for good -------------------------------------------------------------------

TEST_F(CudaTest, AnErrorForGood_EndsTheDeviceAndNamesItself) {
  auto device = Make();
  const auto kernel = device->Load(Kernel());
  const DeviceBuffer buffer = Holding(*device, std::string(8, '\0'));
  const DeviceAddress slots[] = {buffer.address()};
  Set("lose with", CUDA_ERROR_ECC_UNCORRECTABLE);
  Set("lose", 2);
  ASSERT_TRUE(device->Launch(**kernel, slots, {}).ok());
  ASSERT_TRUE(device->Launch(**kernel, slots, {}).ok());
  EXPECT_TRUE(device->health().ok());  // nobody has waited
  const std::vector<std::string> words = {"Fake GPU", "CUDA_ERROR_ECC_UNCORRECTABLE (214)",
                                          "must end"};
  const auto code = absl::StatusCode::kInternal;
  EXPECT_TRUE(Has(device->Synchronize(), code, words));
  EXPECT_TRUE(runtime::IsMemoryFault(device->health()));
  EXPECT_TRUE(Has(device->health(), code, words));
  char byte = 0;
  EXPECT_TRUE(Has(device->Launch(**kernel, slots, {}), code, words));
  EXPECT_TRUE(Has(device->Upload(buffer.address(), "x"), code, words));
  EXPECT_TRUE(Has(device->Download(buffer.address(), 1, &byte), code, words));
  EXPECT_TRUE(Has(device->Allocate(8).status(), code, words));
  EXPECT_TRUE(Has(device->Load(Kernel()).status(), code, words));
  EXPECT_TRUE(Has(device->Time([] { return absl::OkStatus(); }).status(), code, words));
  std::thread([&] {
    EXPECT_TRUE(Has(device->Download(buffer.address(), 1, &byte), code, words));
  }).join();
}

TEST_F(CudaTest, AnIllegalAddress_IsForGood) {
  auto device = Make();
  const auto kernel = device->Load(Kernel());
  const DeviceAddress slots[] = {DeviceAddress{4096}};
  ASSERT_TRUE(device->Launch(**kernel, slots, {}).ok());
  EXPECT_TRUE(
      Has(device->Synchronize(), absl::StatusCode::kInternal, {"CUDA_ERROR_ILLEGAL_ADDRESS"}));
  EXPECT_FALSE(device->health().ok());
  EXPECT_FALSE(runtime::IsMemoryFault(device->health()));
}

// ---- copies beside work -------------------------------------------------------------------------

// As a snapshot does: it has what came before it, and does not wait for what comes later. This
// driver's streams do nothing before somebody waits for them.
TEST_F(CudaTest, ADownload_LeavesWhileLaterWorkIsQueued) {
  const auto device = Make();
  const auto kernel = device->Load(Kernel());
  const DeviceBuffer kept = Holding(*device, "12345678");
  const DeviceBuffer other = Holding(*device, std::string(8, '\0'));
  const DeviceAddress slots[] = {other.address()};
  ASSERT_TRUE(device->Launch(**kernel, slots, {}).ok());
  const int64_t before = Get("kernels run");
  bool later = false;
  std::string got;
  ASSERT_TRUE(device
                  ->Download(kept.address(), 8, 1,
                             [&](std::string_view piece) {
                               if (!std::exchange(later, true)) {  // steps go on
                                 EXPECT_TRUE(device->Launch(**kernel, slots, {}).ok());
                               }
                               got += piece;
                               return absl::OkStatus();
                             })
                  .ok());
  EXPECT_EQ(got, "12345678");
  EXPECT_EQ(Get("kernels run"), before + 1);  // what was queued before, and not what came later
  ASSERT_TRUE(device->Synchronize().ok());
  EXPECT_EQ(Get("kernels run"), before + 2);
}

// ---- which GPUs there are -----------------------------------------------------------------------

TEST_F(CudaTest, ListedDevices_NameTheVariableByWhichAProcessHasOneAlone) {
  Set("devices", 3);
  setenv("CUDA_VISIBLE_DEVICES", "4,GPU-7f,6", 1);
  const auto api = LoadApiFrom(test::kRecordingCudaDriver);
  ASSERT_TRUE(api.ok());
  auto listed = ListDevicesOf(*api);
  unsetenv("CUDA_VISIBLE_DEVICES");
  ASSERT_EQ(listed.size(), 3u);
  EXPECT_EQ(listed[1].environment, std::vector<std::string>{"CUDA_VISIBLE_DEVICES=GPU-7f"});
  EXPECT_EQ(listed[1].properties.name, "Fake GPU");
  EXPECT_EQ(listed[1].properties.memory_bytes, 64 << 20);
  EXPECT_EQ(listed[1].properties.compute_capability, 90);
  listed = ListDevicesOf(*api);
  EXPECT_EQ(listed[2].environment, std::vector<std::string>{"CUDA_VISIBLE_DEVICES=2"});
}

// One line names each that cannot be served; the rest is.
TEST_F(CudaTest, AnOldGpuOrASilentOneBesideANewOne_IsNamedAndLeftOut) {
  Set("devices", 4);
  Set("old devices", 2);
  Set("silent device", 3);
  const auto api = LoadApiFrom(test::kRecordingCudaDriver);
  ASSERT_TRUE(api.ok()) << api.status();
  std::vector<std::string> left_out;
  const auto listed = ListDevicesOf(*api, &left_out);
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0].environment, std::vector<std::string>{"CUDA_VISIBLE_DEVICES=3"});
  ASSERT_EQ(left_out.size(), 3u);
  EXPECT_EQ(left_out[1],
            "CUDA: GPU 1, Fake GPU, has compute capability 7.0; needed: 8.0 or newer (Ampere)");
  EXPECT_EQ(left_out[2].find("CUDA: GPU 2 does not answer: CUDA error (46)"), 0u) << left_out[2];
  EXPECT_EQ(Make()->properties().compute_capability, 90);
  Set("old devices", 4);
  EXPECT_TRUE(Has(LoadApiFrom(test::kRecordingCudaDriver).status(),
                  absl::StatusCode::kUnimplemented, {"GPU 0", "7.0", "8.0"}));
}

// ---- a stream for transfers ---------------------------------------------------------------------

TEST_F(CudaTest, MarksOfATransferStream_AreDoneInTheirOrder) {
  const std::unique_ptr<runtime::Device> device = Make();
  const absl::StatusOr<DriverApi> api = LoadApiFrom(test::kRecordingCudaDriver);
  ASSERT_TRUE(api.ok()) << api.status();
  absl::StatusOr<std::unique_ptr<collective::NcclStream>> stream = MakeNcclStreamOf(*api);
  ASSERT_TRUE(stream.ok()) << stream.status();
  const runtime::DeviceBuffer buffer = Holding(*device, std::string(8, 'a'));
  const auto queue = [&] {
    EXPECT_EQ(api->cuMemsetD8Async(static_cast<CUdeviceptr>(buffer.address()), 'b', 8,
                                   static_cast<CUstream>((*stream)->handle())),
              CUDA_SUCCESS);
    return (*stream)->Mark();
  };
  EXPECT_TRUE((*stream)->IsDone(0).value_or(false)) << "nothing is queued";
  for (int i = 0; i < 3; ++i) {
    const absl::StatusOr<uint64_t> first = queue(), second = queue();
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_LT(*first, *second);
    EXPECT_FALSE((*stream)->IsDone(*first).value_or(true));
    EXPECT_FALSE((*stream)->IsDone(*second).value_or(true));
    api->cuStreamSynchronize(static_cast<CUstream>((*stream)->handle()));
    EXPECT_TRUE((*stream)->IsDone(*second).value_or(false));
    EXPECT_TRUE((*stream)->IsDone(*first).value_or(false));
  }
  stream->reset();
  EXPECT_TRUE(device->Synchronize().ok()) << "its context is still there";
}

}  // namespace
}  // namespace outboard::cuda
