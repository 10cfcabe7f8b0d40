#include "runtime/cpu/elf_loader.h"

#include <cmath>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/cpu/device.h"
#include "runtime/cpu/symbols.h"
#include "runtime/limits.h"
#include "tests/support/paths.h"

namespace outboard::cpu {
namespace {

std::string ReadFile(const char* path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

TEST(ElfLoader, RunsConstantsTablesAndCalls) {
  const std::string object = ReadFile(test::kLoaderSamples);
  ASSERT_FALSE(object.empty());
  std::vector<float> in = {1, 2, 3, 4}, out(4);
  void* buffers[] = {in.data(), out.data()};
  auto add_one = LoadedObject::Load(object, "add_one");
  ASSERT_TRUE(add_one.ok()) << add_one.status();
  add_one->function()(buffers, 1, 3);
  EXPECT_EQ(out, (std::vector<float>{0, 3, 4, 0}));

  std::vector<float> table(8);
  void* table_buffers[] = {table.data()};
  auto calls = LoadedObject::Load(object, "table_and_calls");
  ASSERT_TRUE(calls.ok()) << calls.status();
  calls->function()(table_buffers, 0, 8);
  const float digits[] = {3, 1, 4, 1, 5, 9, 2, 6};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(table[i], digits[i] * 2 + std::exp2(static_cast<float>(i)));

  std::string from = "outboard", to(8, '.');
  void* copies[] = {from.data(), to.data()};
  auto copy = LoadedObject::Load(object, "copy");
  ASSERT_TRUE(copy.ok()) << copy.status();
  copy->function()(copies, 0, 8);
  EXPECT_EQ(to, from);
}

TEST(ElfLoader, Errors) {
  const std::string object = ReadFile(test::kLoaderSamples);
  EXPECT_EQ(LoadedObject::Load("", "k").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(LoadedObject::Load(
                "no object at all, but long enough for a header of sixty-four bytes.....", "k")
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(LoadedObject::Load(object, "absent").status().code(), absl::StatusCode::kNotFound);
  const absl::Status escape =
      LoadedObject::Load(ReadFile(test::kLoaderSamplesBad), "escape").status();
  EXPECT_EQ(escape.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(std::string(escape.message()).find("system"), std::string::npos) << escape;
  const absl::Status large =
      LoadedObject::Load(std::string(limits::kObjectBytesMax + 1, 'x'), "k").status();
  EXPECT_EQ(large.code(), absl::StatusCode::kResourceExhausted);
  for (const size_t number : {limits::kObjectBytesMax + 1, limits::kObjectBytesMax})
    EXPECT_NE(std::string(large.message()).find(std::to_string(number)), std::string::npos)
        << large;
}

TEST(ElfLoader, SurvivesEveryTruncationAndManyFlips) {
  const std::string object = ReadFile(test::kLoaderSamples);
  for (size_t bytes = 0; bytes < object.size(); bytes += 7) {
    EXPECT_FALSE(LoadedObject::Load(object.substr(0, bytes), "add_one").ok()) << bytes;
  }
  const unsigned seed = 20261121;
  std::mt19937 random(seed);
  for (int i = 0; i < 3000; ++i) {  // loaded or refused, never a crash; the code itself is not run
    std::string damaged = object;
    for (int flips = 0; flips < 3; ++flips)
      damaged[random() % damaged.size()] ^= static_cast<char>(1 << (random() % 8));
    (void)LoadedObject::Load(damaged, "add_one");
  }
}

TEST(Symbols, OnlyTheList) {
  EXPECT_NE(AllowedSymbol("exp2"), nullptr);
  EXPECT_NE(AllowedSymbol("__truncsfbf2"), nullptr);
  EXPECT_EQ(AllowedSymbol("system"), nullptr);
  EXPECT_EQ(AllowedSymbol(""), nullptr);
}

TEST(CpuDevice, LaunchesOverAllThreads) {
  CpuDevice device({.threads = 3, .memory_bytes_max = 1 << 20});
  const int64_t count = 50000;
  CompiledKernel kernel{.object = ReadFile(test::kLoaderSamples),
                        .symbol = "add_one",
                        .tasks = count,
                        .buffer_count = 2,
                        .flops = count,
                        .bytes = 8 * count};
  auto program = device.Load(kernel);
  ASSERT_TRUE(program.ok()) << program.status();
  std::vector<float> in(count), out(count);
  for (int64_t i = 0; i < count; ++i) in[i] = static_cast<float>(i);
  const runtime::DeviceAddress buffers[] = {*device.AddressOfHost(in.data(), count * 4),
                                            *device.AddressOfHost(out.data(), count * 4)};
  ASSERT_TRUE(device.Launch(**program, buffers, {}).ok());
  for (int64_t i = 0; i < count; ++i) ASSERT_EQ(out[i], static_cast<float>(i + 1));
  EXPECT_EQ(device.Launch(**program, {buffers, 1}, {}).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace outboard::cpu
