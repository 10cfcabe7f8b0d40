// Incompressible bytes without repetitions, the same in every run: blobs for tests, and operands
// for benchmarks.
#pragma once

#include <cstdint>
#include <random>
#include <string>

namespace outboard::test {

inline std::string RandomBytes(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// Each less than `below`.
inline std::string RandomBytesBelow(size_t size, int below) {
  std::mt19937 random(1);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random() % below);
  return bytes;
}

}  // namespace outboard::test
