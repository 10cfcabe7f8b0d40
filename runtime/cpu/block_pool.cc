#include "runtime/cpu/block_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace outboard::cpu {
namespace {

constexpr int64_t kRound = 4096;

int64_t Rounded(int64_t bytes) { return std::max<int64_t>((bytes + kRound - 1) / kRound * kRound, kRound); }

}  // namespace

Block::Block(Block&& other) noexcept { *this = std::move(other); }

Block& Block::operator=(Block&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Block::~Block() {
  if (pool_ != nullptr) pool_->GiveBack(data_, bytes_);
}

BlockPool::~BlockPool() { FreeKept(); }

absl::StatusOr<Block> BlockPool::Allocate(int64_t bytes) {
  const int64_t size = Rounded(bytes);
  if (bytes < 0 || size > bytes_max_ - bytes_used_)
    return absl::ResourceExhaustedError(absl::StrCat("a buffer of ", bytes, " bytes does not fit: ", bytes_used_,
                                                     " of ", bytes_max_, " bytes are in use"));
  Block block;
  block.pool_ = this;
  block.bytes_ = bytes;
  if (const auto found = kept_.find(size); found != kept_.end()) {
    block.data_ = found->second.back();
    found->second.pop_back();
    if (found->second.empty()) kept_.erase(found);
    bytes_kept_ -= size;
  } else {
    if (size > bytes_max_ - bytes_used_ - bytes_kept_) FreeKept();
    void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      block.pool_ = nullptr;
      return absl::ResourceExhaustedError(absl::StrCat("the system has no memory for a buffer of ", bytes, " bytes"));
    }
    block.data_ = static_cast<char*>(memory);
  }
  bytes_used_ += size;
  return block;
}

void BlockPool::GiveBack(char* data, int64_t bytes) {
  const int64_t size = Rounded(bytes);
  bytes_used_ -= size;
  bytes_kept_ += size;
  kept_[size].push_back(data);
}

void BlockPool::FreeKept() {
  for (auto& [size, blocks] : kept_)
    for (char* block : blocks) munmap(block, size);
  kept_.clear();
  bytes_kept_ = 0;
}

}  // namespace outboard::cpu
