// Dividends whose quotients are hardest to round correctly: those that lie next to the middle of
// two floats (docs/decisions/202-division.md).
#pragma once

#include <bit>
#include <cstdint>

namespace outboard::test {

inline constexpr int64_t kDigitsLeast = 1 << 23, kDigitsEnd = 1 << 24;  // of a float, as an integer

// 2^-`power` modulo the odd number `modulus`.
inline int64_t InversePower(int power, int64_t modulus) {
  int64_t inverse = 1 % modulus;
  for (int i = 0; i < power; ++i)
    inverse = inverse % 2 == 0 ? inverse / 2 : (inverse + modulus) / 2;
  return inverse;
}

// For a divisor b, calls `each` with all dividends a, a and b of 24 digits, whose a / b is k / b
// half units from the middle of two floats, 0 < |k| <= `far`.
template <class F>
void HardDividends(int64_t b, int64_t far, F each) {
  const int twos = std::countr_zero(static_cast<uint64_t>(b));
  const int64_t odd = b >> twos;
  // a 2^s = b m + k, with m odd and of 25 digits.
  for (const int s : {24, 25}) {
    const int64_t inverse = InversePower(s - twos, odd);
    for (int64_t k = -far; k <= far; ++k) {
      if (k == 0 || k % (int64_t{1} << twos) != 0) continue;
      const int64_t first = ((k >> twos) * inverse % odd + odd) % odd;
      for (int64_t a = first; a < kDigitsEnd; a += odd) {
        if (a < kDigitsLeast || (s == 24) != (a >= b)) continue;
        if (((a << s) - k) / b % 2 != 0) each(a);
      }
    }
  }
}

}  // namespace outboard::test
