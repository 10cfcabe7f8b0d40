#include "runtime/block_cache.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/limits.h"

namespace outboard::runtime {
namespace {

BlockSource Source() {
  return {[](int64_t bytes) { return std::aligned_alloc(64, static_cast<size_t>(bytes)); },
          [](void* block) { std::free(block); }};
}

TEST(BlockCache, AlignedAndReused) {
  BlockCache memory(1 << 20, Source());
  const auto first = memory.Allocate(1000);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(*first) % 64, 0u);
  std::memset(*first, 0xAB, 1000);
  EXPECT_GE(memory.bytes_in_use(), 1000);
  memory.Free(*first, 1000);
  EXPECT_EQ(memory.bytes_in_use(), 0);
  EXPECT_GE(memory.bytes_kept(), 1000);
  const auto again = memory.Allocate(1000);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, *first);
  memory.Free(*again, 1000);
  const auto empty = memory.Allocate(0);
  ASSERT_TRUE(empty.ok());
  memory.Free(*empty, 0);
}

TEST(BlockCache, LimitIsNamedAndKeptBlocksGiveWay) {
  BlockCache memory(1 << 20, Source());
  EXPECT_EQ(memory.Allocate(-1).status().code(), absl::StatusCode::kInvalidArgument);
  const absl::Status over = memory.Allocate((1 << 20) + 1).status();
  EXPECT_EQ(over.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(over.message()).find("1048576"), std::string::npos);
  EXPECT_EQ(memory.Allocate(INT64_MAX).status().code(), absl::StatusCode::kResourceExhausted);
  const auto most = memory.Allocate(900 << 10);
  ASSERT_TRUE(most.ok());
  memory.Free(*most, 900 << 10);
  const auto other = memory.Allocate(600 << 10);  // only fits once the kept block is given back
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(memory.bytes_kept(), 0);
  EXPECT_EQ(memory.Allocate(600 << 10).status().code(), absl::StatusCode::kResourceExhausted);
  memory.Free(*other, 600 << 10);
}

// A million of them took 305 MB of a process that was limited to 64 MB.
TEST(BlockCache, ManyTinyBlocks_CountWhatTheyTake) {
  BlockCache memory(1 << 20, Source());
  std::vector<void*> blocks;
  for (;;) {
    const auto block = memory.Allocate(1);
    if (!block.ok()) break;
    blocks.push_back(*block);
  }
  EXPECT_EQ(blocks.size(), (1u << 20) / (64 + limits::kBlockOverheadBytes));
  for (void* block : blocks) memory.Free(block, 1);
  EXPECT_EQ(memory.bytes_in_use(), 0);
  // Kept blocks are used again, and count again.
  for (size_t i = 0; i < blocks.size(); ++i) ASSERT_TRUE(memory.Allocate(1).ok()) << i;
  EXPECT_FALSE(memory.Allocate(1).ok());
  for (void* block : blocks) memory.Free(block, 1);
}

}  // namespace
}  // namespace outboard::runtime
