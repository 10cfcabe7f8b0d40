// A device's memory on a CPU: aligned, counted, and given out again.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

namespace outboard::cpu {

class BlockPool;

// A block of a BlockPool, given back when it goes. The pool outlives it.
class Block {
 public:
  Block() = default;
  Block(Block&& other) noexcept;
  Block& operator=(Block&& other) noexcept;
  ~Block();

  char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  friend class BlockPool;
  BlockPool* pool_ = nullptr;
  char* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Blocks aligned to 64 bytes. What is given back is kept and given out again for the same size: a training step asks
// for the same sizes every time, and fresh pages cost more than most kernels.
//
// A block is zero when it comes from the system and holds old values of this pool when it is given out again; a pool
// therefore serves one session, in a process of its own, and whoever asks for a block writes it whole before it is read.
// Threads: one.
class BlockPool {
 public:
  explicit BlockPool(int64_t bytes_max) : bytes_max_(bytes_max) {}
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Errors: RESOURCE_EXHAUSTED  `bytes` more would be over the pool's limit; says both
  absl::StatusOr<Block> Allocate(int64_t bytes);

  int64_t bytes_used() const { return bytes_used_; }  // by blocks that are out

 private:
  friend class Block;
  void GiveBack(char* data, int64_t bytes);
  void FreeKept();

  int64_t bytes_max_;
  int64_t bytes_used_ = 0;
  int64_t bytes_kept_ = 0;
  std::map<int64_t, std::vector<char*>> kept_;  // by size
};

}  // namespace outboard::cpu
