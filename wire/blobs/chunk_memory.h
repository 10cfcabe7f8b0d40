// A pool of chunk buffers: allocating 4 MiB from the system for each chunk would cost a page fault
// per 4 KiB.
//
// Threads: any. A buffer may outlive the ChunkMemory that it came from, e.g. in gRPC's buffers.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "wire/limits.h"

namespace outboard::wire {

class ChunkMemory {
 public:
  // Returns a buffer of kBlobChunkBytes, uninitialised; it returns to the pool with its last owner.
  std::shared_ptr<char> Take() {
    std::unique_ptr<char[]> block;
    {
      std::lock_guard lock(free_->mutex);
      if (!free_->blocks.empty()) {
        block = std::move(free_->blocks.back());
        free_->blocks.pop_back();
      }
    }
    if (block == nullptr) block.reset(new char[kBlobChunkBytes]);
    return std::shared_ptr<char>(block.release(), [free = free_](char* data) {
      std::lock_guard lock(free->mutex);
      free->blocks.emplace_back(data);
    });
  }

 private:
  struct Free {
    std::mutex mutex;
    std::vector<std::unique_ptr<char[]>> blocks;
  };
  const std::shared_ptr<Free> free_ = std::make_shared<Free>();
};

}  // namespace outboard::wire
