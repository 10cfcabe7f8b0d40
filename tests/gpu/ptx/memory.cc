#include "tests/gpu/ptx/memory.h"

#include <algorithm>
#include <cstring>

namespace outboard::ptx {

void Region::Save(uint64_t offset, uint64_t bytes) {
  for (uint64_t page = offset / kPageBytes; page <= (offset + bytes - 1) / kPageBytes; ++page) {
    if (page == last_saved) continue;
    last_saved = page;
    const auto [it, added] = log.try_emplace(page);
    if (!added) continue;
    const uint64_t begin = page * kPageBytes;
    const uint64_t end = std::min<uint64_t>(begin + kPageBytes, data.size());
    it->second.data.assign(data.begin() + begin, data.begin() + end);
    it->second.state.assign(state.begin() + begin, state.begin() + end);
  }
}

void Region::Written(uint64_t offset, uint64_t bytes, uint32_t clock) {
  std::memset(state.data() + offset, kWritten, bytes);
  const uint64_t end = offset + bytes;
  for (uint64_t at = offset, covered = 0; at < end; at += covered)
    ShadowAt(at, end - at, &covered)->write_clock = clock;
}

void Region::Divide(ShadowPage* page, uint64_t unit_bytes) {
  auto units = std::make_unique<Shadow[]>(kPageBytes / unit_bytes);
  for (uint64_t i = 0; page->units != nullptr && i < kPageBytes / unit_bytes; ++i)
    units[i] = page->units[i * unit_bytes / page->unit_bytes];
  page->unit_bytes = unit_bytes;
  page->units = std::move(units);
}

uint64_t DeviceMemory::Allocate(uint64_t bytes) {
  const uint64_t rounded = (std::max<uint64_t>(bytes, 1) + 255) / 256 * 256;
  if (rounded > capacity_ - used_) return 0;
  const uint64_t address = next_;
  regions_[address] = std::make_unique<Region>(address, bytes);
  next_ += rounded + kGapBytes;
  used_ += rounded;
  return address;
}

bool DeviceMemory::Free(uint64_t address) {
  const auto it = regions_.find(address);
  if (it == regions_.end()) return false;
  used_ -= (std::max<uint64_t>(it->second->bytes(), 1) + 255) / 256 * 256;
  if (last_ == it->second.get()) last_ = nullptr;
  regions_.erase(it);
  return true;
}

Region* DeviceMemory::Find(uint64_t address, uint64_t bytes) {
  const auto holds = [&](const Region& region) {
    return address >= region.base && bytes <= region.bytes() &&
           address - region.base <= region.bytes() - bytes;
  };
  if (last_ != nullptr && holds(*last_)) return last_;
  auto it = regions_.upper_bound(address);
  if (it == regions_.begin()) return nullptr;
  --it;
  if (!holds(*it->second)) return nullptr;
  return last_ = it->second.get();
}

bool DeviceMemory::Write(uint64_t address, const void* from, uint64_t bytes) {
  if (bytes == 0) return true;
  Region* region = Find(address, bytes);
  if (region == nullptr) return false;
  std::memcpy(region->data.data() + (address - region->base), from, bytes);
  std::memset(region->state.data() + (address - region->base), kWritten, bytes);
  return true;
}

bool DeviceMemory::Read(uint64_t address, void* to, uint64_t bytes) {
  if (bytes == 0) return true;
  Region* region = Find(address, bytes);
  if (region == nullptr) return false;
  std::memcpy(to, region->data.data() + (address - region->base), bytes);
  return true;
}

bool DeviceMemory::Copy(uint64_t to, uint64_t from, uint64_t bytes) {
  if (bytes == 0) return true;
  Region* source = Find(from, bytes);
  Region* target = Find(to, bytes);
  if (source == nullptr || target == nullptr) return false;
  std::memmove(target->data.data() + (to - target->base),
               source->data.data() + (from - source->base), bytes);
  std::memmove(target->state.data() + (to - target->base),
               source->state.data() + (from - source->base), bytes);
  return true;
}

bool DeviceMemory::Fill(uint64_t address, uint8_t value, uint64_t bytes, bool counts_as_written) {
  if (bytes == 0) return true;
  Region* region = Find(address, bytes);
  if (region == nullptr) return false;
  std::memset(region->data.data() + (address - region->base), value, bytes);
  if (counts_as_written)
    std::memset(region->state.data() + (address - region->base), kWritten, bytes);
  return true;
}

}  // namespace outboard::ptx
