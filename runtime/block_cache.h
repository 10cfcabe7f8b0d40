// BlockCache: caches freed blocks of a device's memory for reuse.
//
// A training step allocates and frees the same sizes over and over; getting them from the system
// each time would cost a page fault for every 4 KiB. Freed blocks are cached by size class (at most
// 1/8 larger than requested) and count against the limit until another size needs the memory. A
// block in use also counts what an array takes beside its bytes (limits::kBlockOverheadBytes). One
// process serves one session, so the old contents of a reused block belong to the same session.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace outboard::runtime {

// The allocator that a BlockCache uses: allocate(bytes) returns memory aligned to
// limits::kBufferAlignment, or nullptr if there is none.
struct BlockSource {
  std::function<void*(int64_t bytes)> allocate;
  std::function<void(void*)> free;
};

class BlockCache {
 public:
  // bytes_max: limit for blocks in use and cached blocks together.
  BlockCache(int64_t bytes_max, BlockSource source);
  ~BlockCache();
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  // Returns a block with undefined contents; Free takes it back, with the same `bytes`, which may
  // be 0.
  // Errors: INVALID_ARGUMENT    negative size
  //         RESOURCE_EXHAUSTED  names the bytes requested, those in use and the limit
  absl::StatusOr<void*> Allocate(int64_t bytes);
  // `used_until`: queued work up to this place uses the block still; for AllocateIdle.
  void Free(void* block, int64_t bytes, uint64_t used_until = 0);

  // A block that need not be idle: work up to `used_until` uses it still (0: none does).
  struct Block {
    void* address;
    uint64_t used_until;
    bool is_new;  // from the allocator
  };
  // As Allocate, for a device whose work runs later: prefers a block that no work beyond `done`
  // uses, and a new one, where there is room, to one that is in use still.
  absl::StatusOr<Block> AllocateIdle(int64_t bytes, uint64_t done);

  // Counts memory that was not allocated here (a mapped file) against the limit, until Uncount.
  // Errors: RESOURCE_EXHAUSTED  as above
  absl::Status Count(int64_t bytes);
  void Uncount(int64_t bytes);

  // Frees all cached blocks.
  void DropKept();

  // Lowers the limit; a higher limit has no effect. Blocks in use stay allocated.
  void Limit(int64_t bytes_max);

  int64_t bytes_in_use() const { return bytes_in_use_; }
  int64_t bytes_kept() const { return bytes_kept_; }
  int64_t bytes_max() const { return bytes_max_; }

 private:
  struct Kept {
    void* block;
    uint64_t used_until;
  };

  static int64_t SizeClass(int64_t bytes);
  absl::Status CheckRoom(int64_t bytes, int64_t size);
  Block Take(std::vector<Kept>& kept, size_t index, int64_t size);

  int64_t bytes_max_;
  const BlockSource source_;
  int64_t bytes_in_use_ = 0;
  int64_t bytes_kept_ = 0;
  std::map<int64_t, std::vector<Kept>> kept_;  // by size class
};

}  // namespace outboard::runtime
