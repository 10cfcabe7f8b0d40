// What a tenant's kernel finds of the tenant before: on the tests' driver, whose new memory holds
// 0xAA and whose shared memory and registers hold what the last kernel left there, as on a GPU.
#include <dlfcn.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/cuda/api.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/scrub.h"
#include "tests/gpu/ptx/machine.h"

namespace outboard::cuda {
namespace {

using runtime::Device;
using runtime::DeviceAddress;

constexpr uint32_t kSecret = 0x5ec2e7ed;
constexpr int kThreads = 512;
constexpr int kRegisters = 64;           // of a thread
constexpr int kSharedWords = 2048;
constexpr int kWords = kRegisters * kThreads + kSharedWords;

std::string Head(const char* name) {
  return absl::StrCat(
      ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry ", name,
      "(.param .u64 out)\n{\n  .reg .b32 %r<", kRegisters,
      ">;\n  .reg .b32 %a<4>;\n  .reg .b64 %rd<4>;\n  .shared .align 4 .b8 words[",
      4 * kSharedWords,
      "];\n  ld.param.u64 %rd1, [out];\n  mov.u32 %a1, %tid.x;\n  mul.wide.u32 %rd2, %a1, 4;\n"
      "  add.s64 %rd1, %rd1, %rd2;\n  mov.u32 %a2, words;\n  shl.b32 %a3, %a1, 2;\n"
      "  add.u32 %a2, %a2, %a3;\n");
}

// Fills registers and shared memory with the secret, and stores something.
std::string Victim() {
  std::string text = Head("victim");
  for (int i = 0; i < kRegisters; ++i)
    absl::StrAppend(&text, "  mov.u32 %r", i, ", ", kSecret, ";\n");
  for (int word = 0; word < kSharedWords; word += kThreads)
    absl::StrAppend(&text, "  st.shared.u32 [%a2+", 4 * word, "], %r0;\n");
  return absl::StrCat(text, "  st.global.u32 [%rd1], %r0;\n  ret;\n}\n");
}

// Stores what it finds in both before it has written either.
std::string Canary() {
  std::string text = Head("canary");
  for (int i = 0; i < kRegisters; ++i)
    absl::StrAppend(&text, "  st.global.u32 [%rd1+", 4 * kThreads * i, "], %r", i, ";\n");
  for (int word = 0; word < kSharedWords; word += kThreads)
    absl::StrAppend(&text, "  ld.shared.u32 %r0, [%a2+", 4 * word, "];\n  st.global.u32 [%rd1+",
                    4 * (kThreads * kRegisters + word), "], %r0;\n");
  return absl::StrCat(text, "  ret;\n}\n");
}

class GpuLeftovers : public ::testing::Test {
 protected:
  // Before the driver is loaded, which reads them once.
  static void SetUpTestSuite() {
    setenv("OUTBOARD_FAKE_CUDA_AA", "1", 1);
    setenv("OUTBOARD_FAKE_CUDA_MIB", "32", 1);
    setenv("OUTBOARD_FAKE_CUDA_RUNS", "1", 1);
    api_ = new absl::StatusOr<DriverApi>(LoadApiFrom(FAKE_CUDA));
    ASSERT_TRUE(api_->ok()) << api_->status();
  }
  static std::unique_ptr<Device> Make() {
    auto device = MakeCudaDeviceOf(**api_, {});
    EXPECT_TRUE(device.ok()) << device.status();
    return *std::move(device);
  }
  // Runs a kernel of one block and returns what it has stored.
  static std::vector<uint32_t> Run(Device& device, const char* name, const std::string& text) {
    CompiledKernel kernel;
    kernel.form = CompiledKernel::Form::kPtx;
    kernel.symbol = name;
    kernel.object = text;
    kernel.buffer_count = 1;
    kernel.tasks = 1;
    kernel.blocks = {1, 1, 1};
    kernel.threads = {kThreads, 1, 1};
    const auto loaded = device.Load(kernel);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    const auto buffer = device.Allocate(4 * kWords);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    const DeviceAddress slots[] = {buffer->address()};
    EXPECT_TRUE(device.Launch(**loaded, slots, {}).ok());
    std::vector<uint32_t> words(kWords);
    EXPECT_TRUE(device.Download(buffer->address(), 4 * kWords, words.data()).ok());
    return words;
  }
  static int64_t Secrets(const std::vector<uint32_t>& words, size_t first, size_t count) {
    return std::count(words.begin() + static_cast<int64_t>(first),
                      words.begin() + static_cast<int64_t>(first + count), kSecret);
  }

  static inline absl::StatusOr<DriverApi>* api_ = nullptr;
};

constexpr size_t kRegisterWords = size_t{kRegisters} * kThreads;

// The test can fail: without the scrub the canary sings.
TEST_F(GpuLeftovers, WithoutAScrub_AKernelFindsRegistersAndSharedMemoryOfTheLast) {
  { Run(*Make(), "victim", Victim()); }
  const std::vector<uint32_t> found = Run(*Make(), "canary", Canary());
  EXPECT_GT(Secrets(found, 0, kRegisterWords), static_cast<int64_t>(kRegisterWords / 2));
  EXPECT_EQ(Secrets(found, kRegisterWords, kSharedWords), kSharedWords);
}

TEST_F(GpuLeftovers, AfterAScrub_AKernelFindsNothing) {
  { Run(*Make(), "victim", Victim()); }
  const auto device = Make();
  ASSERT_TRUE(device->Scrub().ok()) << device->Scrub();
  const std::vector<uint32_t> found = Run(*device, "canary", Canary());
  EXPECT_EQ(Secrets(found, 0, kRegisterWords), 0);
  EXPECT_EQ(Secrets(found, kRegisterWords, kSharedWords), 0);
}

// Memory of the driver's that nobody has asked us for is overwritten, too: what the driver gives
// another way, and the rest of a page that a small array lies in.
TEST_F(GpuLeftovers, AScrub_TakesAllFreeMemoryAndGivesItBack) {
  const auto device = Make();
  const DriverApi& api = **api_;
  size_t before = 0, after = 0, total = 0;
  ASSERT_EQ(api.cuMemGetInfo(&before, &total), CUDA_SUCCESS);
  const auto scrubbed = [&](const char* name) {
    return reinterpret_cast<unsigned long long (*)(const char*)>(  // NOLINT: as it is declared
        dlsym(dlopen(FAKE_CUDA, RTLD_NOW | RTLD_NOLOAD), "outboard_fake_cuda_counter"))(name);
  };
  const auto filled = scrubbed("filled_bytes");
  ASSERT_TRUE(device->Scrub().ok());
  ASSERT_EQ(api.cuMemGetInfo(&after, &total), CUDA_SUCCESS);
  EXPECT_EQ(before, after);
  EXPECT_GE(scrubbed("filled_bytes") - filled, before - (size_t{2} << 20));
}

// What must hold of the text itself, whoever compiles it: it is assembled for all classes in
// docs/gpu-workers.md, where registers and spills are figures.
// A multiprocessor that none of our blocks got would keep what it has.
TEST(ScrubKernel, BlocksThatDoNotMeetTheOthers_SaySo) {
  constexpr uint32_t kBlocks = 4, kWords = 1024, kPolls = 64;
  for (const int resident : {1, 4}) {
    ptx::DeviceMemory memory;
    ptx::MachineOptions options;
    options.resident_blocks = resident;
    ptx::Machine machine(&memory, options);
    const auto module = machine.Load(ScrubText());
    ASSERT_TRUE(module.ok()) << module.status();
    uint32_t counts[2] = {};
    const uint64_t arrived = memory.Allocate(sizeof counts);
    ASSERT_TRUE(memory.Write(arrived, counts, sizeof counts));
    ptx::LaunchConfig launch;
    launch.grid[0] = kBlocks;
    launch.block[0] = kScrubThreads;
    launch.shared_bytes = 4 * kWords;
    struct {
      uint64_t arrived;
      uint32_t words, blocks, polls;
    } parameters = {arrived, kWords, kBlocks, resident == 1 ? kPolls : 100'000};
    constexpr size_t kParameterBytes = sizeof(uint64_t) + 3 * sizeof(uint32_t);
    launch.parameters.resize(kParameterBytes);
    std::memcpy(launch.parameters.data(), &parameters, kParameterBytes);
    const absl::Status ran = machine.Launch(**module, kScrubKernel, launch);
    ASSERT_TRUE(ran.ok()) << ran;
    ASSERT_TRUE(memory.Read(arrived, counts, sizeof counts));
    EXPECT_EQ(counts[0], kBlocks);
    // One by one, all but the last wait in vain.
    EXPECT_EQ(counts[1], resident == 1 ? kBlocks - 1 : 0);
  }
}

TEST_F(GpuLeftovers, TheScrubsText_HoldsAsManyValuesAsAThreadHasRegistersFor) {
  const std::string text = ScrubText();
  EXPECT_NE(text.find(absl::StrCat(".reqntid ", kScrubThreads)), std::string::npos);
  EXPECT_NE(text.find("%v<120>"), std::string::npos);
}

}  // namespace
}  // namespace outboard::cuda
