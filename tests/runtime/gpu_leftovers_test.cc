// What a tenant's kernel finds of the tenant before: on the tests' driver, whose memory, shared
// memory and registers hold what was left there last, as on a GPU.
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
#include "tests/support/paths.h"

namespace outboard::cuda {
namespace {

using runtime::Device;
using runtime::DeviceAddress;

constexpr uint32_t kSecret = 0x5ec2e7ed;
constexpr int kThreads = 512;
constexpr int kRegisters = 64;  // of a thread
constexpr int kSharedWords = 2048;
constexpr int kBlocks = 3;
constexpr int kWords = kRegisters * kThreads + kSharedWords;  // of a block
constexpr uint64_t kMemoryBytes = uint64_t{32} << 20;

std::string Head(const char* name) {
  return absl::StrCat(
      ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry ", name,
      "(.param .u64 out)\n{\n  .reg .b32 %r<", kRegisters,
      ">;\n  .reg .b32 %a<4>;\n  .reg .b64 %rd<4>;\n  .shared .align 4 .b8 words[",
      4 * kSharedWords,
      "];\n  ld.param.u64 %rd1, [out];\n  mov.u32 %a1, %tid.x;\n  mul.wide.u32 %rd2, %a1, 4;\n"
      "  add.s64 %rd1, %rd1, %rd2;\n  mov.u32 %a2, %ctaid.x;\n  mul.wide.u32 %rd2, %a2, ",
      4 * kWords,
      ";\n  add.s64 %rd1, %rd1, %rd2;\n  mov.u32 %a2, words;\n  shl.b32 %a3, %a1, 2;\n"
      "  add.u32 %a2, %a2, %a3;\n");
}

// Fills registers and shared memory with the secret, and stores something.
std::string VictimText() {
  std::string text = Head("victim");
  for (int i = 0; i < kRegisters; ++i)
    absl::StrAppend(&text, "  mov.u32 %r", i, ", ", kSecret, ";\n");
  for (int word = 0; word < kSharedWords; word += kThreads)
    absl::StrAppend(&text, "  st.shared.u32 [%a2+", 4 * word, "], %r0;\n");
  return absl::StrCat(text, "  st.global.u32 [%rd1], %r0;\n  ret;\n}\n");
}

// Stores what it finds in both before it has written either.
std::string CanaryText() {
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
    setenv("OUTBOARD_FAKE_CUDA_LEFTOVERS", "1", 1);
    setenv("OUTBOARD_FAKE_CUDA_MIB", "32", 1);
    setenv("OUTBOARD_FAKE_CUDA_RUNS", "1", 1);
    api_ = new absl::StatusOr<DriverApi>(LoadApiFrom(test::kFakeCuda));
    ASSERT_TRUE(api_->ok()) << api_->status();
  }
  static std::unique_ptr<Device> Make() {
    auto device = MakeCudaDeviceOf(**api_, {});
    EXPECT_TRUE(device.ok()) << device.status();
    return *std::move(device);
  }
  // Runs a kernel of kBlocks blocks and returns what they have stored.
  static std::vector<uint32_t> Run(Device& device, const char* name, const std::string& text) {
    CompiledKernel kernel;
    kernel.form = CompiledKernel::Form::kPtx;
    kernel.symbol = name;
    kernel.object = text;
    kernel.buffer_count = 1;
    kernel.tasks = kBlocks;
    kernel.blocks = {kBlocks, 1, 1};
    kernel.threads = {kThreads, 1, 1};
    const auto loaded = device.Load(kernel);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    const auto buffer = device.Allocate(4 * kBlocks * kWords);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    const DeviceAddress slots[] = {buffer->address()};
    EXPECT_TRUE(device.Launch(**loaded, slots, {}).ok());
    std::vector<uint32_t> words(kBlocks * kWords);
    EXPECT_TRUE(device.Download(buffer->address(), 4 * kBlocks * kWords, words.data()).ok());
    return words;
  }
  static int64_t Secrets(const std::vector<uint32_t>& words, size_t first, size_t count) {
    return std::count(words.begin() + static_cast<int64_t>(first),
                      words.begin() + static_cast<int64_t>(first + count), kSecret);
  }
  // A tenant that fills what it can, and ends.
  static void Victim() {
    const auto device = Make();
    std::vector<uint32_t> secrets((kMemoryBytes - (uint64_t{4} << 20)) / 4, kSecret);
    const auto memory = device->Allocate(static_cast<int64_t>(4 * secrets.size()));
    ASSERT_TRUE(memory.ok()) << memory.status();
    ASSERT_TRUE(device
                    ->Upload(memory->address(),
                             {reinterpret_cast<const char*>(secrets.data()), 4 * secrets.size()})
                    .ok());
    Run(*device, "victim", VictimText());
  }
  // What the next one finds in memory that the driver gives it.
  static int64_t SecretsInMemory() {
    constexpr size_t kBytes = size_t{24} << 20;
    const DriverApi& api = **api_;
    std::vector<uint32_t> words(kBytes / 4);
    CUdeviceptr memory = 0;
    EXPECT_EQ(api.cuMemAlloc(&memory, kBytes), CUDA_SUCCESS);
    EXPECT_EQ(api.cuMemcpyDtoHAsync(words.data(), memory, kBytes, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(api.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(api.cuMemFree(memory), CUDA_SUCCESS);
    return Secrets(words, 0, words.size());
  }
  // In arrays that the device gives, small and large.
  static int64_t SecretsInArrays(Device& device) {
    int64_t found = 0;
    for (const int64_t bytes : {int64_t{4} << 10, int64_t{1} << 20, int64_t{24} << 20}) {
      const auto array = device.Allocate(bytes);
      EXPECT_TRUE(array.ok()) << array.status();
      std::vector<uint32_t> words(static_cast<size_t>(bytes) / 4);
      EXPECT_TRUE(device.Download(array->address(), bytes, words.data()).ok());
      found += Secrets(words, 0, words.size());
    }
    return found;
  }

  static inline absl::StatusOr<DriverApi>* api_ = nullptr;
};

constexpr size_t kRegisterWords = size_t{kRegisters} * kThreads;

// The tests below can fail: without the scrub the canary sings.
TEST_F(GpuLeftovers, WithoutAScrub_AKernelFindsRegistersAndSharedMemoryOfTheLast) {
  Victim();
  const std::vector<uint32_t> found = Run(*Make(), "canary", CanaryText());
  for (size_t block = 0; block < kBlocks; ++block) {
    EXPECT_GT(Secrets(found, block * kWords, kRegisterWords),
              static_cast<int64_t>(kRegisterWords / 2));
    EXPECT_EQ(Secrets(found, block * kWords + kRegisterWords, kSharedWords), kSharedWords);
  }
}

TEST_F(GpuLeftovers, WithoutAScrub_MemoryHoldsWhatTheLastHadThere) {
  Victim();
  const auto device = Make();
  EXPECT_GT(SecretsInMemory(), 1'000'000);
}

// A second wall: what the driver gives a device is cleared before anybody has it.
TEST_F(GpuLeftovers, WithoutAScrub_ArraysHoldNothing) {
  Victim();
  EXPECT_EQ(SecretsInArrays(*Make()), 0);
}

TEST_F(GpuLeftovers, AfterAScrub_AKernelFindsNothing) {
  Victim();
  const auto device = Make();
  ASSERT_TRUE(device->Scrub().ok()) << device->Scrub();
  const std::vector<uint32_t> found = Run(*device, "canary", CanaryText());
  for (size_t block = 0; block < kBlocks; ++block) {
    EXPECT_EQ(Secrets(found, block * kWords, kRegisterWords), 0) << block;
    EXPECT_EQ(Secrets(found, block * kWords + kRegisterWords, kSharedWords), 0) << block;
  }
}

TEST_F(GpuLeftovers, AfterAScrub_MemoryHoldsNothing) {
  Victim();
  const auto device = Make();
  ASSERT_TRUE(device->Scrub().ok()) << device->Scrub();
  EXPECT_EQ(SecretsInMemory(), 0);
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
        dlsym(dlopen(test::kFakeCuda, RTLD_NOW | RTLD_NOLOAD), "outboard_fake_cuda_counter"))(name);
  };
  const auto filled = scrubbed("filled_bytes");
  ASSERT_TRUE(device->Scrub().ok());
  ASSERT_EQ(api.cuMemGetInfo(&after, &total), CUDA_SUCCESS);
  EXPECT_EQ(before, after);
  EXPECT_GE(scrubbed("filled_bytes") - filled, before - (size_t{2} << 20));
}

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

// What must hold of the text itself, whoever compiles it: it is assembled for all classes in
// docs/gpu-workers.md, where registers and spills are figures.
TEST_F(GpuLeftovers, TheScrubsText_HoldsAsManyValuesAsAThreadHasRegistersFor) {
  const std::string text = ScrubText();
  EXPECT_NE(text.find(absl::StrCat(".reqntid ", kScrubThreads)), std::string::npos);
  EXPECT_NE(text.find("%v<120>"), std::string::npos);
}

}  // namespace
}  // namespace outboard::cuda
