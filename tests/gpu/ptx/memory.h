// Memory of the machine: bytes, and what is known of each byte.
//
// Per byte: whether it was ever written or is being copied right now (`state`), and who wrote and
// read it last and at which clock (`Shadow`), from which races are found (clocks.h).
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace outboard::ptx {

enum ByteState : uint8_t { kUnwritten = 0, kWritten = 1, kInFlight = 2 };

// Who: block << 12 | kAtomicBit | thread; clocks of earlier launches lie below the launch's base.
struct Shadow {
  uint32_t write_clock = 0, write_who = 0;
  uint32_t read_clock = 0, read_who = 0;
  uint32_t other_clock = 0, other_who = 0;  // a second reader that the first is not ordered with
};

// A run of bytes: an allocation of the device, or the shared memory of a block.
class Region {
 public:
  static constexpr uint64_t kPageBytes = 1024;  // of shadows and of the undo log

  Region(uint64_t base, uint64_t bytes)
      : base(base),
        data(bytes),
        state(bytes, kUnwritten),
        shadows_((bytes + kPageBytes - 1) / kPageBytes) {}

  uint64_t bytes() const { return data.size(); }
  // The shadow of the bytes from `offset` on, of which `*covered` at most `bytes` have this one
  // in common. Bytes that have always been accessed together share theirs: a page has one for
  // each unit of the smallest access so far.
  Shadow* ShadowAt(uint64_t offset, uint64_t bytes, uint64_t* covered) {
    ShadowPage& page = shadows_[offset / kPageBytes];
    const auto unit = uint64_t{1} << std::countr_zero(offset | bytes | kUnitBytesMax);
    if (page.units == nullptr || unit < page.unit_bytes) Divide(&page, unit);
    *covered = page.unit_bytes;
    return &page.units[offset % kPageBytes / page.unit_bytes];
  }

  // Calls f(offset of a shadow's first byte, shadow) for all that an access has made.
  template <class F>
  void ForShadows(F f) const {
    for (size_t page = 0; page < shadows_.size(); ++page) {
      if (shadows_[page].units == nullptr) continue;
      for (uint64_t at = 0; at < kPageBytes; at += shadows_[page].unit_bytes)
        f(page * kPageBytes + at, shadows_[page].units[at / shadows_[page].unit_bytes]);
    }
  }

  // Bytes that have been in flight are there, as of `clock` of whoever had them copied.
  void Written(uint64_t offset, uint64_t bytes, uint32_t clock);

  uint64_t base;
  std::vector<uint8_t> data;
  std::vector<uint8_t> state;

  // Pages written since StartLog, as they were; empty and off for shared memory.
  struct SavedPage {
    std::vector<uint8_t> data, state;
  };
  std::map<uint64_t, SavedPage> log;
  bool logging = false;
  uint64_t last_saved = ~uint64_t{0};  // a page that the log has
  void Save(uint64_t offset, uint64_t bytes);

 private:
  static constexpr uint64_t kUnitBytesMax = 16;  // the largest access of a lane
  struct ShadowPage {
    uint64_t unit_bytes = 0;
    std::unique_ptr<Shadow[]> units;
  };
  static void Divide(ShadowPage* page, uint64_t unit_bytes);

  std::vector<ShadowPage> shadows_;
};

// The device's memory. Addresses lie in a range of their own, are never used twice, and have gaps
// between them, so that an access behind the end or after Free() is found.
class DeviceMemory {
 public:
  static constexpr uint64_t kBase = uint64_t{0x10} << 32;
  static constexpr uint64_t kGapBytes = 4096;

  explicit DeviceMemory(uint64_t capacity_bytes = uint64_t{4} << 30) : capacity_(capacity_bytes) {}

  // 0 if there is not that much left. Aligned to 256 bytes, as cuMemAlloc's.
  uint64_t Allocate(uint64_t bytes);
  bool Free(uint64_t address);
  // The allocation that holds all of [address, address + bytes), or nullptr.
  Region* Find(uint64_t address, uint64_t bytes);

  // Host access; false if the range is not allocated. Read() gives what is there, written or not.
  bool Write(uint64_t address, const void* from, uint64_t bytes);
  bool Read(uint64_t address, void* to, uint64_t bytes);
  bool Copy(uint64_t to, uint64_t from, uint64_t bytes);  // unwritten bytes stay unwritten
  bool Fill(uint64_t address, uint8_t value, uint64_t bytes, bool counts_as_written);

  uint64_t capacity() const { return capacity_; }
  uint64_t used() const { return used_; }
  std::map<uint64_t, std::unique_ptr<Region>>& regions() { return regions_; }

 private:
  uint64_t capacity_;
  uint64_t used_ = 0;
  uint64_t next_ = kBase;
  Region* last_ = nullptr;
  std::map<uint64_t, std::unique_ptr<Region>> regions_;
};

}  // namespace outboard::ptx
