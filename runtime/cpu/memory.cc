#include "runtime/cpu/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/limits.h"

namespace outboard::cpu {

int64_t DefaultMemoryBytesMax() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE) / 4 * 3;
}

Buffer::Buffer(Buffer&& other) noexcept
    : owner_(other.owner_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(other.bytes_),
      mapped_(other.mapped_) {}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  if (mapped_)
    owner_->Unmap(data_, bytes_);
  else
    owner_->Free(data_, bytes_);
}

Allocator::~Allocator() { DropKept(); }

// Eight classes between powers of two, and never less than a cache line.
int64_t Allocator::SizeClass(int64_t bytes) {
  const auto wanted = static_cast<uint64_t>(std::max(bytes, limits::kBufferAlignment));
  const uint64_t step = std::max<uint64_t>(std::bit_floor(wanted) / 8, limits::kBufferAlignment);
  return static_cast<int64_t>((wanted + step - 1) / step * step);
}

// Makes room of what is kept, if that helps.
absl::Status Allocator::CheckRoom(int64_t bytes, int64_t size) {
  if (bytes <= bytes_max_) {
    if (bytes_kept_ > 0 && bytes_in_use_ + bytes_kept_ + size > bytes_max_) DropKept();
    if (bytes_in_use_ + size <= bytes_max_) return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat("a buffer of ", bytes, " bytes, with ",
                                                   bytes_in_use_, " bytes in use; the limit is ",
                                                   bytes_max_));
}

absl::StatusOr<Buffer> Allocator::Allocate(int64_t bytes, Contents contents) {
  if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("a buffer of ", bytes, " bytes"));
  const int64_t size = SizeClass(bytes);
  void* data = nullptr;
  if (const auto it = kept_.find(size);
      bytes <= bytes_max_ && it != kept_.end() && !it->second.empty()) {
    data = it->second.back();
    it->second.pop_back();
    bytes_kept_ -= size;
  } else {
    if (absl::Status status = CheckRoom(bytes, size); !status.ok()) return status;
    data = std::aligned_alloc(limits::kBufferAlignment, static_cast<size_t>(size));
    if (data == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a buffer of ", bytes, " bytes: the system has no memory"));
    }
  }
  bytes_in_use_ += size;
  if (contents == Contents::kZeroed) std::memset(data, 0, static_cast<size_t>(bytes));
  return Buffer(this, data, bytes, /*mapped=*/false);
}

absl::StatusOr<Buffer> Allocator::MapFile(const std::string& path, int64_t bytes) {
  if (bytes <= 0) return Allocate(bytes);
  if (absl::Status status = CheckRoom(bytes, bytes); !status.ok()) return status;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info {};
  void* data = MAP_FAILED;
  if (fd >= 0 && fstat(fd, &info) == 0 && info.st_size >= bytes) {
    data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_NORESERVE, fd, 0);
  }
  if (fd >= 0) close(fd);
  if (data == MAP_FAILED)
    return absl::DataLossError(absl::StrCat("the file of ", bytes, " bytes cannot be mapped"));
  bytes_in_use_ += bytes;
  return Buffer(this, data, bytes, /*mapped=*/true);
}

void Allocator::Unmap(void* data, int64_t bytes) {
  bytes_in_use_ -= bytes;
  munmap(data, static_cast<size_t>(bytes));
}

void Allocator::Limit(int64_t bytes_max) { bytes_max_ = std::min(bytes_max_, bytes_max); }

void Allocator::Free(void* data, int64_t bytes) {
  const int64_t size = SizeClass(bytes);
  bytes_in_use_ -= size;
  bytes_kept_ += size;
  kept_[size].push_back(data);
}

void Allocator::DropKept() {
  for (auto& [size, blocks] : kept_) {
    for (void* block : blocks) std::free(block);
  }
  kept_.clear();
  bytes_kept_ = 0;
}

}  // namespace outboard::cpu
