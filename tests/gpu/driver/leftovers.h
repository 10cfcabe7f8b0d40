// What lies in the device's memory while nobody has it: addresses of ptx::DeviceMemory are never
// used twice, the memory behind them is.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tests/gpu/ptx/memory.h"

namespace outboard::fake_cuda {

class Leftovers {
 public:
  explicit Leftovers(uint64_t bytes) : bytes_(bytes, 0xaa), free_{{0, bytes}} {}

  // The allocation at `address` gets what is left in the lowest place that it fits in; bytes of an
  // allocation that fits nowhere stay as they are. They count as written.
  void Give(ptx::DeviceMemory* memory, uint64_t address, uint64_t bytes) {
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      const auto [place, size] = *it;
      if (size < bytes) continue;
      free_.erase(it);
      if (size > bytes) free_[place + bytes] = size - bytes;
      places_[address] = {place, bytes};
      memory->Write(address, bytes_.data() + place, bytes);
      return;
    }
  }

  // The allocation is about to be freed.
  void TakeBack(ptx::DeviceMemory* memory, uint64_t address) {
    const auto it = places_.find(address);
    if (it == places_.end()) return;
    auto [place, size] = it->second;
    places_.erase(it);
    memory->Read(address, bytes_.data() + place, size);
    auto next = free_.lower_bound(place);
    if (next != free_.end() && next->first == place + size) {
      size += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      --next;
      if (next->first + next->second == place) {
        next->second += size;
        return;
      }
    }
    free_[place] = size;
  }

 private:
  struct Place {
    uint64_t place = 0, bytes = 0;
  };
  std::vector<uint8_t> bytes_;
  std::map<uint64_t, uint64_t> free_;  // by place: bytes
  std::map<uint64_t, Place> places_;   // by address
};

}  // namespace outboard::fake_cuda
