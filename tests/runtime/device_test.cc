// What runtime/device.h promises, on every device that is there. Each test is tried on all of
// them; a device that this machine lacks is skipped by its name.
#include "runtime/device.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/devices.h"
#include "runtime/far/device.h"
#include "tests/support/paths.h"
#include "tests/support/temp_folder.h"

namespace outboard::runtime {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

constexpr int kCount = 1024;

// out[i] = in[i] + 1, for kCount floats; in is slot 0.
CompiledKernel AddOne(CompiledKernel::Form form) {
  CompiledKernel kernel;
  kernel.form = form;
  kernel.symbol = "add_one";
  kernel.tasks = kCount;
  kernel.buffer_count = 2;
  kernel.flops = kernel.bytes = 1 << 20;  // enough for several threads
  if (form == CompiledKernel::Form::kElfX86) {
    kernel.object = ReadFile(test::kLoaderSamples);
    return kernel;
  }
  kernel.tasks = kCount / 64;
  kernel.blocks = {kCount / 64, 1, 1};
  kernel.threads = {64, 1, 1};
  if (form == CompiledKernel::Form::kPtx) {
    kernel.object = R"(
.version 7.0
.target sm_50
.address_size 64
.visible .entry add_one(.param .u64 in, .param .u64 out)
{
  .reg .b32 %r<5>;
  .reg .f32 %f<3>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [in];
  ld.param.u64 %rd2, [out];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.s32 %r4, %r1, %r2, %r3;
  mul.wide.s32 %rd3, %r4, 4;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
  ld.global.f32 %f1, [%rd4];
  add.rn.f32 %f2, %f1, 0f3F800000;
  st.global.f32 [%rd5], %f2;
  ret;
}
)";
  } else {
    kernel.object = R"(
__kernel void add_one(__global uchar* in_bytes, __global uchar* out_bytes) {
  __global const float* in = (__global const float*)in_bytes;
  __global float* out = (__global float*)out_bytes;
  const size_t i = get_group_id(0) * 64 + get_local_id(0);
  out[i] = in[i] + 1.0f;
})";
  }
  return kernel;
}

class DeviceTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const absl::Status there = CheckDeviceKind(GetParam()); !there.ok())
      GTEST_SKIP() << there.message();
    device_ = *MakeDevice(GetParam(), {.threads = 2, .memory_bytes_max = 1 << 24});
    ASSERT_EQ(device_->properties().kind, GetParam());
  }
  std::string Bytes(const DeviceBuffer& buffer) {
    std::string bytes(static_cast<size_t>(buffer.bytes()), '\0');
    EXPECT_TRUE(device_->Download(buffer.address(), buffer.bytes(), bytes.data()).ok());
    return bytes;
  }
  DeviceBuffer Holding(const std::string& bytes) {
    DeviceBuffer buffer = *device_->Allocate(static_cast<int64_t>(bytes.size()));
    EXPECT_TRUE(device_->Upload(buffer.address(), bytes).ok());
    return buffer;
  }
  std::unique_ptr<Device> device_;
};

TEST_P(DeviceTest, Memory_TakesEffectInOrder) {
  DeviceBuffer a = Holding("0123456789");
  EXPECT_EQ(static_cast<uint64_t>(a.address()) % 64, 0u);
  const DeviceBuffer b = *device_->Allocate(10);
  ASSERT_TRUE(device_->Fill(b.address(), '.', 10).ok());
  ASSERT_TRUE(device_->Copy(b.address() + 2, a.address() + 5, 3).ok());
  {
    std::string source = "ab";
    ASSERT_TRUE(device_->Upload(a.address() + 8, source).ok());
    source = "XY";  // read already
  }
  EXPECT_EQ(Bytes(b), "..567.....");
  EXPECT_EQ(Bytes(a), "01234567ab");
  const DeviceBuffer moved = std::move(a);
  EXPECT_EQ(Bytes(moved), "01234567ab");
  EXPECT_EQ(Bytes(*device_->Allocate(0)), "");
}

TEST_P(DeviceTest, Download_InPieces) {
  const DeviceBuffer buffer = Holding("0123456789");
  std::vector<std::string> pieces;
  const auto keep = [&](std::string_view piece) {
    pieces.emplace_back(piece);
    return pieces.size() < 3 ? absl::OkStatus() : absl::CancelledError("enough");
  };
  EXPECT_EQ(device_->Download(buffer.address(), 10, 3, keep).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(pieces, (std::vector<std::string>{"012", "345", "678"}));
  pieces.clear();
  EXPECT_TRUE(device_->Download(buffer.address(), 5, 4, keep).ok());
  EXPECT_EQ(pieces, (std::vector<std::string>{"0123", "4"}));
  EXPECT_TRUE(device_->Download(buffer.address(), 0, 4, keep).ok());
}

TEST_P(DeviceTest, CopyBox_AgainstLoops) {
  const std::vector<int64_t> box = {2, 3}, wide = {3, 5};
  const DeviceBuffer dense = Holding("abcdef"), spread = Holding(std::string(15, '.'));
  ASSERT_TRUE(
      device_->CopyBox(spread.address(), wide, dense.address(), box, box, /*element_bytes=*/1)
          .ok());
  EXPECT_EQ(Bytes(spread), "abc..def.......");
  const DeviceBuffer back = Holding("------");
  ASSERT_TRUE(device_->CopyBox(back.address(), box, spread.address(), wide, box, 1).ok());
  EXPECT_EQ(Bytes(back), "abcdef");
  const std::vector<int64_t> none = {2, 0};
  EXPECT_TRUE(device_->CopyBox(back.address(), box, spread.address(), wide, none, 1).ok());
  const DeviceBuffer scalar = Holding("x");
  EXPECT_TRUE(device_->CopyBox(back.address(), {}, scalar.address(), {}, {}, 1).ok());
  EXPECT_EQ(Bytes(back), "xbcdef");
}

TEST_P(DeviceTest, Memory_LimitIsNamedAndWhatIsFreedComesBack) {
  EXPECT_EQ(device_->Allocate(-1).status().code(), absl::StatusCode::kInvalidArgument);
  const absl::Status over = device_->Allocate((1 << 24) + 1).status();
  EXPECT_EQ(over.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(over.message()).find("16777216"), std::string::npos) << over;
  for (int i = 0; i < 10; ++i) {
    const auto most = device_->Allocate(15 << 20);
    ASSERT_TRUE(most.ok()) << i << " " << most.status();
    ASSERT_TRUE(device_->Fill(most->address(), 1, 1000).ok());
  }
  EXPECT_EQ(device_->memory_bytes_in_use(), 0);
  device_->LimitMemory(1 << 20);
  EXPECT_EQ(device_->memory_bytes_max(), 1 << 20);
  EXPECT_EQ(device_->Allocate(2 << 20).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_P(DeviceTest, MapFile_MayBeWrittenOver) {
  test::TempFolder folder;
  const std::string path = folder / "blob";
  std::ofstream(path) << "0123456789";
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  {
    const DeviceBuffer first = *device_->MapFile(fd, 10), second = *device_->MapFile(fd, 4);
    ASSERT_TRUE(device_->Upload(first.address(), "changed").ok());
    EXPECT_EQ(Bytes(first), "changed789");
    EXPECT_EQ(Bytes(second), "0123");
  }
  EXPECT_EQ(ReadFile(path), "0123456789");
  EXPECT_EQ(device_->MapFile(fd, 11).status().code(), absl::StatusCode::kDataLoss);
  close(fd);
  EXPECT_EQ(device_->MapFile(-1, 1).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(device_->memory_bytes_in_use(), 0);
}

TEST_P(DeviceTest, Launch_WhatItNeedsMayGoBeforeItRuns) {
  std::vector<float> in(kCount);
  for (int i = 0; i < kCount; ++i) in[i] = static_cast<float>(i);
  const std::string bytes(reinterpret_cast<const char*>(in.data()), 4 * kCount);
  const DeviceBuffer out = *device_->Allocate(4 * kCount);
  {
    const DeviceBuffer source = Holding(bytes), between = *device_->Allocate(4 * kCount);
    auto kernel = device_->Load(AddOne(device_->properties().form));
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    EXPECT_EQ((*kernel)->buffer_count(), 2);
    std::vector<DeviceAddress> slots = {source.address(), between.address()};
    ASSERT_TRUE(device_->Launch(**kernel, slots, {}).ok());
    slots = {between.address(), out.address()};
    ASSERT_TRUE(device_->Launch(**kernel, slots, {}).ok());
    EXPECT_EQ(device_->Launch(**kernel, {slots.data(), 1}, {}).code(), absl::StatusCode::kInternal);
    slots = {DeviceAddress{1}, DeviceAddress{1}};
  }
  const std::string got = Bytes(out);
  for (int i = 0; i < kCount; ++i)
    ASSERT_EQ(reinterpret_cast<const float*>(got.data())[i], in[i] + 2) << i;
}

TEST_P(DeviceTest, LaunchAll_IsAsItsLaunches) {
  const auto kernel = device_->Load(AddOne(device_->properties().form));
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_TRUE(device_->health().ok());
  std::vector<DeviceBuffer> buffers;
  for (int i = 0; i < 4; ++i) buffers.push_back(Holding(std::string(4 * kCount, '\0')));
  std::unique_ptr<LaunchRecord> record;
  for (int round = 0; round < 5; ++round) {
    // From the first to the last through one of two others, by turns.
    const DeviceAddress between = buffers[1 + round / 2 % 2].address();
    const DeviceAddress first[] = {buffers[0].address(), between},
                        second[] = {between, buffers[3].address()};
    const KernelLaunch launches[] = {{kernel->get(), first}, {kernel->get(), second}};
    ASSERT_TRUE(device_->LaunchAll(launches, {}, record).ok());
    ASSERT_TRUE(device_->Copy(buffers[0].address(), buffers[3].address(), 4 * kCount).ok());
  }
  record.reset();
  const std::string got = Bytes(buffers[3]);
  for (int i = 0; i < kCount; ++i)
    ASSERT_EQ(reinterpret_cast<const float*>(got.data())[i], 10.0f) << i;
}

TEST_P(DeviceTest, Load_OfNoTasksDoesNothing) {
  CompiledKernel nothing;
  nothing.form = device_->properties().form;
  const auto kernel = device_->Load(nothing);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_TRUE(device_->Launch(**kernel, {}, {}).ok());
  EXPECT_TRUE(device_->Synchronize().ok());
}

TEST_P(DeviceTest, Load_AnotherFormIsRefused) {
  const auto other = device_->properties().form == CompiledKernel::Form::kElfX86
                         ? CompiledKernel::Form::kOpenClC
                         : CompiledKernel::Form::kElfX86;
  EXPECT_EQ(device_->Load(AddOne(other)).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(DeviceTest, Time_IsOfTheWork) {
  const auto kernel = device_->Load(AddOne(device_->properties().form));
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  const DeviceBuffer in = Holding(std::string(4 * kCount, '\0')),
                     out = *device_->Allocate(4 * kCount);
  const DeviceAddress slots[] = {in.address(), out.address()};
  const auto launch = [&] { return device_->Launch(**kernel, slots, {}); };
  const absl::StatusOr<double> one = device_->Time(launch);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_GE(*one, 0);
  EXPECT_LT(*one, 10);
  EXPECT_EQ(device_->Time([] { return absl::DataLossError("x"); }).status().code(),
            absl::StatusCode::kDataLoss);
}

// As a writer of snapshots does, while steps go on.
TEST_P(DeviceTest, Download_FromASecondThread) {
  const std::string bytes(100000, 'b');
  const DeviceBuffer held = Holding(bytes), other = Holding(bytes);
  bool equal = true;
  std::thread reader([&] {
    for (int i = 0; i < 20; ++i) {
      std::string got;
      const auto append = [&](std::string_view piece) {
        got += piece;
        return absl::OkStatus();
      };
      equal = equal && device_->Download(held.address(), held.bytes(), 4096, append).ok() &&
              got == bytes;
    }
  });
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(device_->Fill(other.address(), static_cast<unsigned char>(i), 100000).ok());
    if (i % 50 == 0) {
      ASSERT_TRUE(device_->Synchronize().ok());
    }
  }
  reader.join();
  EXPECT_TRUE(equal);
  EXPECT_EQ(Bytes(other), std::string(100000, static_cast<char>(199)));
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceTest, ::testing::Values("cpu", "far", "opencl", "cuda"),
                         [](const auto& info) { return info.param; });

TEST(Devices, AnUnknownNameListsThoseThatAreThere) {
  const absl::Status status = MakeDevice("toaster", {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find("\"toaster\""), std::string::npos) << status;
  for (const std::string& kind : DeviceKinds()) {
    EXPECT_TRUE(CheckDeviceKind(kind).ok());
    EXPECT_NE(std::string(status.message()).find(kind), std::string::npos) << status;
  }
}

// ---- what only some devices promise -------------------------------------------------------------

// Counts copies; each fails.
class FailingDevice final : public Device {
 public:
  explicit FailingDevice(int* copies) : copies_(copies) {}
  const DeviceProperties& properties() const override { return properties_; }
  absl::StatusOr<DeviceBuffer> Allocate(int64_t bytes) override {
    return MakeBuffer(DeviceAddress{64}, bytes, false);
  }
  void LimitMemory(int64_t) override {}
  int64_t memory_bytes_max() const override { return 0; }
  int64_t memory_bytes_in_use() const override { return 0; }
  absl::Status Upload(DeviceAddress, std::string_view) override { return {}; }
  absl::Status Download(DeviceAddress, int64_t, void*) override { return {}; }
  absl::Status Copy(DeviceAddress, DeviceAddress, int64_t) override {
    ++*copies_;
    return absl::DataLossError("a copy");
  }
  absl::Status Fill(DeviceAddress, unsigned char, int64_t) override { return {}; }
  absl::StatusOr<std::unique_ptr<DeviceKernel>> Load(const CompiledKernel& kernel) override {
    return std::make_unique<DeviceKernel>(kernel);
  }
  absl::Status Launch(const DeviceKernel&, std::span<const DeviceAddress>,
                      std::span<const int64_t>) override {
    return {};
  }
  absl::Status Synchronize() override { return {}; }
  absl::StatusOr<double> Time(absl::FunctionRef<absl::Status()>) override { return 0; }

 private:
  void Free(DeviceAddress, int64_t, bool) override {}
  int* const copies_;
  DeviceProperties properties_;
};

TEST(FarDevice, NothingRunsBeforeSomebodyWaits) {
  int copies = 0;
  far::FarDevice device(std::make_unique<FailingDevice>(&copies));
  const DeviceBuffer buffer = *device.Allocate(4);
  EXPECT_GT(static_cast<uint64_t>(buffer.address()) >> 47, 0u);  // no pointer of a process
  EXPECT_FALSE(device.AddressOfHost(nullptr, 1).has_value());
  EXPECT_TRUE(device.Copy(buffer.address(), buffer.address(), 1).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(copies, 0);
  EXPECT_EQ(device.Synchronize().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(copies, 1);
  EXPECT_TRUE(device.Synchronize().ok());  // reported once
}

TEST(FarDeathTest, TheHostCannotFollowAnAddress) {
  const auto device = *MakeDevice("far", {.memory_bytes_max = 1 << 20});
  const DeviceBuffer buffer = *device->Allocate(4);
  const auto* const data =
      reinterpret_cast<const volatile char*>(static_cast<uintptr_t>(buffer.address()));
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(static_cast<void>(*data), "");
}

class OpenClTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const absl::Status there = CheckDeviceKind("opencl"); !there.ok())
      GTEST_SKIP() << there.message();
    device_ = *MakeDevice("opencl", {.memory_bytes_max = 1 << 24});
  }
  absl::StatusOr<std::unique_ptr<DeviceKernel>> Load(const std::string& text, int64_t threads = 1) {
    CompiledKernel kernel;
    kernel.form = CompiledKernel::Form::kOpenClC;
    kernel.symbol = "k";
    kernel.tasks = 2;
    kernel.buffer_count = 1;
    kernel.object = text;
    kernel.blocks = {2, 1, 1};
    kernel.threads = {threads, 1, 1};
    kernel.reads_vars = text.find("vars") != std::string::npos;
    return device_->Load(kernel);
  }
  std::unique_ptr<Device> device_;
};

TEST_F(OpenClTest, VariablesLocalMemoryAndBarriers) {
  // Each block reverses its 8 values and adds VAR 1.
  const auto kernel = Load(R"(
__kernel void k(__global uchar* bytes, __global const long* vars) {
  __global long* data = (__global long*)bytes;
  __local long shared[8];
  const size_t i = get_local_id(0), first = get_group_id(0) * 8;
  shared[i] = data[first + i];
  barrier(CLK_LOCAL_MEM_FENCE);
  data[first + i] = shared[7 - i] + vars[1];
})",
                           8);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  std::vector<int64_t> data(16);
  for (int i = 0; i < 16; ++i) data[i] = i;
  const DeviceBuffer buffer = *device_->Allocate(128);
  ASSERT_TRUE(
      device_->Upload(buffer.address(), {reinterpret_cast<const char*>(data.data()), 128}).ok());
  const DeviceAddress slot[] = {buffer.address()};
  {
    std::vector<int64_t> vars = {7, 100};
    ASSERT_TRUE(device_->Launch(**kernel, slot, vars).ok());
    vars = {0, 0};
  }
  ASSERT_TRUE(device_->Download(buffer.address(), 128, data.data()).ok());
  for (int i = 0; i < 16; ++i) EXPECT_EQ(data[i], i / 8 * 8 + 7 - i % 8 + 100) << i;
  EXPECT_EQ(device_->Launch(**kernel, slot, {}).code(), absl::StatusCode::kInternal);
}

TEST_F(OpenClTest, ErrorsNameTheDeviceAndTheLog) {
  const absl::Status wrong =
      Load("__kernel void k(__global uchar* b) { b[0] = nonsense; }").status();
  EXPECT_EQ(wrong.code(), absl::StatusCode::kInternal);
  EXPECT_NE(std::string(wrong.message()).find(device_->properties().name), std::string::npos);
  EXPECT_NE(std::string(wrong.message()).find("nonsense"), std::string::npos) << wrong;
  EXPECT_EQ(Load("__kernel void other(__global uchar* b) {}").status().code(),
            absl::StatusCode::kNotFound);
  const absl::Status large = Load("__kernel void k(__global uchar* b) {}", 1 << 20).status();
  EXPECT_EQ(large.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(std::string(large.message()).find(std::to_string(1 << 20)), std::string::npos) << large;
}

}  // namespace
}  // namespace outboard::runtime
