#include "runtime/block_cache.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/limits.h"

namespace outboard::runtime {

BlockCache::BlockCache(int64_t bytes_max, BlockSource source)
    : bytes_max_(bytes_max), source_(std::move(source)) {}

BlockCache::~BlockCache() { DropKept(); }

// Eight classes between powers of two, and never less than a cache line.
int64_t BlockCache::SizeClass(int64_t bytes) {
  const auto wanted = static_cast<uint64_t>(std::max(bytes, limits::kBufferAlignment));
  const uint64_t step = std::max<uint64_t>(std::bit_floor(wanted) / 8, limits::kBufferAlignment);
  return static_cast<int64_t>((wanted + step - 1) / step * step);
}

// Drops kept blocks, if that helps.
absl::Status BlockCache::CheckRoom(int64_t bytes, int64_t size) {
  if (bytes <= bytes_max_) {
    if (bytes_kept_ > 0 && bytes_in_use_ + bytes_kept_ + size > bytes_max_) DropKept();
    if (bytes_in_use_ + size <= bytes_max_) return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat("a buffer of ", bytes, " bytes, with ",
                                                   bytes_in_use_, " bytes in use; the limit is ",
                                                   bytes_max_));
}

BlockCache::Block BlockCache::Take(std::vector<Kept>& kept, size_t index, int64_t size) {
  const Kept taken = kept[index];
  kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(index));
  bytes_kept_ -= size;
  bytes_in_use_ += size + limits::kBlockOverheadBytes;
  return {taken.block, taken.used_until, /*is_new=*/false};
}

absl::StatusOr<void*> BlockCache::Allocate(int64_t bytes) {
  if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("a buffer of ", bytes, " bytes"));
  const int64_t size = SizeClass(bytes);
  if (const auto it = kept_.find(size);
      bytes <= bytes_max_ && it != kept_.end() && !it->second.empty())
    return Take(it->second, it->second.size() - 1, size).address;
  const int64_t wanted = size + limits::kBlockOverheadBytes;
  if (absl::Status status = CheckRoom(bytes, wanted); !status.ok()) return status;
  void* const block = source_.allocate(size);
  if (block == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a buffer of ", bytes, " bytes: the system has no memory"));
  }
  bytes_in_use_ += wanted;
  return block;
}

absl::StatusOr<BlockCache::Block> BlockCache::AllocateIdle(int64_t bytes, uint64_t done) {
  const int64_t size = SizeClass(bytes);
  const auto kept = kept_.find(size);
  if (bytes >= 0 && bytes <= bytes_max_ && kept != kept_.end() && !kept->second.empty()) {
    std::vector<Kept>& blocks = kept->second;
    const auto idle = std::ranges::find_if(
        blocks, [&](const Kept& each) { return each.used_until <= done; });
    if (idle != blocks.end())
      return Take(blocks, static_cast<size_t>(idle - blocks.begin()), size);
    const int64_t wanted = size + limits::kBlockOverheadBytes;
    if (bytes_in_use_ + bytes_kept_ + wanted > bytes_max_) return Take(blocks, 0, size);
    void* const block = source_.allocate(size);
    if (block == nullptr) return Take(blocks, 0, size);
    bytes_in_use_ += wanted;
    return Block{block, 0, /*is_new=*/true};
  }
  absl::StatusOr<void*> block = Allocate(bytes);
  if (!block.ok()) return block.status();
  return Block{*block, 0, /*is_new=*/true};
}

void BlockCache::Free(void* block, int64_t bytes, uint64_t used_until) {
  const int64_t size = SizeClass(bytes);
  bytes_in_use_ -= size + limits::kBlockOverheadBytes;
  bytes_kept_ += size;
  kept_[size].push_back({block, used_until});
}

absl::Status BlockCache::Count(int64_t bytes) {
  const int64_t size = bytes + limits::kBlockOverheadBytes;
  absl::Status status = CheckRoom(bytes, size);
  if (status.ok()) bytes_in_use_ += size;
  return status;
}

void BlockCache::Uncount(int64_t bytes) { bytes_in_use_ -= bytes + limits::kBlockOverheadBytes; }

void BlockCache::Limit(int64_t bytes_max) { bytes_max_ = std::min(bytes_max_, bytes_max); }

void BlockCache::DropKept() {
  for (auto& [size, blocks] : kept_) {
    for (const Kept& kept : blocks) source_.free(kept.block);
  }
  kept_.clear();
  bytes_kept_ = 0;
}

}  // namespace outboard::runtime
