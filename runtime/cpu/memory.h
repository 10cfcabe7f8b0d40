// Memory of the CPU device: aligned blocks that are kept for reuse.
//
// A training step allocates and frees the same sizes over and over; getting them from the system
// each time would cost a page fault for every 4 KiB. Freed blocks are kept by size class (at most
// 1/8 larger than asked) and count against the limit, until another size needs the room. One
// process serves one session, so that what a block held before is the session's own; still, a
// Buffer is zeroed unless its maker overwrites all of it.
//
// Threads: an Allocator and its Buffers belong to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace outboard::cpu {

// What is given away where nobody says otherwise: three quarters of the machine's memory, since the
// system and whatever else runs here need some too.
int64_t DefaultMemoryBytesMax();

class Allocator;

// A block of memory, 64-byte aligned; back to its allocator at its end, which it must not outlive.
class Buffer {
 public:
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer();

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }  // as asked for

 private:
  friend class Allocator;
  Buffer(Allocator* owner, void* data, int64_t bytes, bool mapped)
      : owner_(owner), data_(data), bytes_(bytes), mapped_(mapped) {}
  Allocator* owner_;
  void* data_;
  int64_t bytes_;
  bool mapped_;  // a file's; goes back to the system
};

class Allocator {
 public:
  // bytes_max: of buffers in use and kept ones together.
  explicit Allocator(int64_t bytes_max) : bytes_max_(bytes_max) {}
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  enum class Contents { kZeroed, kUndefined };
  // `bytes` may be 0.
  // Errors: INVALID_ARGUMENT    negative
  //         RESOURCE_EXHAUSTED  names the bytes asked for, those in use and the limit
  absl::StatusOr<Buffer> Allocate(int64_t bytes, Contents contents = Contents::kZeroed);

  // The first `bytes` bytes of a file, which may be written over: the file stays as it is. Nothing
  // is read before it is used, and what nobody writes is shared with whoever else has the file
  // mapped. The file must not become shorter.
  // Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED  as above
  //         DATA_LOSS                             the file cannot be mapped, or has fewer bytes
  absl::StatusOr<Buffer> MapFile(const std::string& path, int64_t bytes);

  // Lowers the limit; one above the present one changes nothing. What is in use stays.
  void Limit(int64_t bytes_max);

  int64_t bytes_in_use() const { return bytes_in_use_; }
  int64_t bytes_kept() const { return bytes_kept_; }
  int64_t bytes_max() const { return bytes_max_; }

 private:
  friend class Buffer;
  static int64_t SizeClass(int64_t bytes);
  absl::Status CheckRoom(int64_t bytes, int64_t size);
  void Free(void* data, int64_t bytes);
  void Unmap(void* data, int64_t bytes);
  void DropKept();

  int64_t bytes_max_;
  int64_t bytes_in_use_ = 0;
  int64_t bytes_kept_ = 0;
  std::map<int64_t, std::vector<void*>> kept_;  // by size class
};

}  // namespace outboard::cpu
