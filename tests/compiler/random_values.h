// Random numbers that are the same on every machine, and random elements of every type.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "compiler/ir/dtype.h"

namespace outboard::test {

// mt19937_64 with our own distributions, since those of the standard library differ between
// machines.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t Bits() { return engine_(); }
  int64_t Below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  bool OneIn(int64_t n) { return Below(n) == 0; }
  double Unit() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  template <typename T>
  const T& Of(const std::vector<T>& values) {
    return values[Below(static_cast<int64_t>(values.size()))];
  }

 private:
  std::mt19937_64 engine_;
};

// kind 0: small and often exact in sums and products; 1: ordinary; 2: corners, NaN and infinities
// among them.
double RandomFloat(Random& random, DType dtype, int kind);
// kind 0: small; 1: any bits; 2: corners.
int64_t RandomInt(Random& random, DType dtype, int kind);

}  // namespace outboard::test
