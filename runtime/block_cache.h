// BlockCache: blocks of a device's memory, kept for reuse.
//
// A training step allocates and frees the same sizes over and over; getting them from the system
// each time would cost a page fault for every 4 KiB. Freed blocks are kept by size class (at most
// 1/8 larger than asked) and count against the limit, until another size needs the memory. One
// process serves one session, so that what a block held before is the session's own.
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

// Where a BlockCache gets memory: allocate(bytes) returns nullptr where there is none; what it
// returns is aligned to limits::kBufferAlignment.
struct BlockSource {
  std::function<void*(int64_t bytes)> allocate;
  std::function<void(void*)> free;
};

class BlockCache {
 public:
  // bytes_max: of blocks in use and kept ones together.
  BlockCache(int64_t bytes_max, BlockSource source);
  ~BlockCache();
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  // A block of undefined contents, which goes back by Free with the same `bytes`; these may be 0.
  // Errors: INVALID_ARGUMENT    negative
  //         RESOURCE_EXHAUSTED  names the bytes asked for, those in use and the limit
  absl::StatusOr<void*> Allocate(int64_t bytes);
  void Free(void* block, int64_t bytes);

  // Counts memory that comes from elsewhere (a mapped file) against the limit, until Uncount.
  // Errors: RESOURCE_EXHAUSTED  as above
  absl::Status Count(int64_t bytes);
  void Uncount(int64_t bytes) { bytes_in_use_ -= bytes; }

  // Gives back what is kept.
  void DropKept();

  // Lowers the limit; one above the present one changes nothing. What is in use stays.
  void Limit(int64_t bytes_max);

  int64_t bytes_in_use() const { return bytes_in_use_; }
  int64_t bytes_kept() const { return bytes_kept_; }
  int64_t bytes_max() const { return bytes_max_; }

 private:
  static int64_t SizeClass(int64_t bytes);
  absl::Status CheckRoom(int64_t bytes, int64_t size);

  int64_t bytes_max_;
  const BlockSource source_;
  int64_t bytes_in_use_ = 0;
  int64_t bytes_kept_ = 0;
  std::map<int64_t, std::vector<void*>> kept_;  // by size class
};

}  // namespace outboard::runtime
