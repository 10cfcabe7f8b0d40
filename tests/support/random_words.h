// Bytes that look random and are known by their place alone: a blob of any size without memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "absl/status/status.h"
#include "wire/blobs/source.h"

namespace outboard::test {

// splitmix64 of the number of each word of 8 bytes.
inline uint64_t RandomWord(uint64_t seed, uint64_t index) {
  uint64_t z = seed * 0xD1342543DE82EF95u + (index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// `size` and all offsets that are read: multiples of 8.
inline wire::BlobSource RandomSource(uint64_t size, uint64_t seed) {
  return {size, [seed](uint64_t offset, std::span<char> out) {
            for (size_t i = 0; i < out.size(); i += 8) {
              const uint64_t word = RandomWord(seed, (offset + i) / 8);
              std::memcpy(out.data() + i, &word, std::min<size_t>(8, out.size() - i));
            }
            return absl::OkStatus();
          }};
}

}  // namespace outboard::test
