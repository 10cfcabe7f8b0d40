// A table by handles. Clients number what they make in order, and what one Run makes the next one
// reads: neighbours lie in one block, and most look-ups are in the block of the one before.
//
// A block has places for kBlockHandles, so handles far from each other take more memory than they
// need: places() says how much, for a limit.
//
// Where memory ends, TryEmplace throws and nothing has changed. Abseil's hash tables do not promise
// that: one that found no memory to grow must not even be destroyed
// (docs/decisions/229-what-throws-in-the-gateway.md).
//
// Threads: one at a time, and Find of a const table counts, too.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>

namespace outboard::gateway {

template <typename T>
class HandleTable {
 public:
  static constexpr size_t kBlockHandles = 16;

  // nullptr: there is none. A pointer is good until its handle is erased.
  T* Find(uint64_t handle) const {
    Block* const block = BlockOf(handle);
    return block != nullptr && block->Has(handle) ? &block->PlaceOf(handle) : nullptr;
  }
  // Whether it is new.
  std::pair<T*, bool> TryEmplace(uint64_t handle) {
    Block* block = BlockOf(handle);
    if (block == nullptr) {
      auto made = std::make_unique<Block>();
      block = made.get();
      blocks_.emplace(handle / kBlockHandles, std::move(made));
      last_ = block;
      last_number_ = handle / kBlockHandles;
    }
    const bool is_new = !block->Has(handle);
    block->used |= Bit(handle);
    size_ += is_new;
    return {&block->PlaceOf(handle), is_new};
  }
  void Erase(uint64_t handle) {
    Block* const block = BlockOf(handle);
    if (block == nullptr || !block->Has(handle)) return;
    block->PlaceOf(handle) = T();
    block->used &= static_cast<uint16_t>(~Bit(handle));
    --size_;
    if (block->used != 0) return;
    last_ = nullptr;
    blocks_.erase(handle / kBlockHandles);
  }
  void Clear() {
    last_ = nullptr;
    blocks_.clear();
    size_ = 0;
  }
  // Calls f(handle, value) for each, in no order.
  template <typename F>
  void ForEach(const F& f) const {
    for (const auto& [number, block] : blocks_)
      for (unsigned left = block->used; left != 0; left &= left - 1) {
        const auto place = static_cast<size_t>(std::countr_zero(left));
        f(number * kBlockHandles + place, std::as_const(block->places[place]));
      }
  }
  size_t size() const { return size_; }
  size_t places() const { return blocks_.size() * kBlockHandles; }  // that its blocks have

 private:
  static uint16_t Bit(uint64_t handle) {
    return static_cast<uint16_t>(1u << (handle % kBlockHandles));
  }
  struct Block {
    bool Has(uint64_t handle) const { return (used & Bit(handle)) != 0; }
    T& PlaceOf(uint64_t handle) { return places[handle % kBlockHandles]; }
    uint16_t used = 0;  // a bit for each place
    std::array<T, kBlockHandles> places = {};
  };
  Block* BlockOf(uint64_t handle) const {
    const uint64_t number = handle / kBlockHandles;
    if (last_ != nullptr && last_number_ == number) return last_;
    const auto found = blocks_.find(number);
    if (found == blocks_.end()) return nullptr;
    last_number_ = number;
    return last_ = found->second.get();
  }

  std::unordered_map<uint64_t, std::unique_ptr<Block>> blocks_;  // none is empty
  size_t size_ = 0;
  mutable Block* last_ = nullptr;  // that was looked at
  mutable uint64_t last_number_ = 0;
};

}  // namespace outboard::gateway
