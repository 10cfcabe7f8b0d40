#include "runtime/cpu/memory.h"

#include <cstdint>
#include <cstring>
#include <optional>

#include "gtest/gtest.h"

namespace outboard::cpu {
namespace {

TEST(Allocator, ZeroedAlignedAndReused) {
  Allocator memory(1 << 20);
  void* first = nullptr;
  {
    auto buffer = memory.Allocate(1000);
    ASSERT_TRUE(buffer.ok());
    first = buffer->data();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u);
    std::memset(first, 0xAB, 1000);
  }
  EXPECT_EQ(memory.bytes_in_use(), 0);
  EXPECT_GE(memory.bytes_kept(), 1000);
  auto again = memory.Allocate(1000);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->data(), first);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(static_cast<unsigned char*>(again->data())[i], 0);
  EXPECT_TRUE(memory.Allocate(0).ok());
}

TEST(Allocator, LimitIsNamedAndKeptBlocksGiveWay) {
  Allocator memory(1 << 20);
  EXPECT_EQ(memory.Allocate(-1).status().code(), absl::StatusCode::kInvalidArgument);
  const absl::Status over = memory.Allocate((1 << 20) + 1).status();
  EXPECT_EQ(over.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(over.message()).find("1048576"), std::string::npos);
  EXPECT_EQ(memory.Allocate(INT64_MAX).status().code(), absl::StatusCode::kResourceExhausted);
  {
    auto most = memory.Allocate(900 << 10);
    ASSERT_TRUE(most.ok());
  }
  auto other = memory.Allocate(600 << 10);  // only fits once the kept block is given back
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(memory.bytes_kept(), 0);
  EXPECT_EQ(memory.Allocate(600 << 10).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace outboard::cpu
