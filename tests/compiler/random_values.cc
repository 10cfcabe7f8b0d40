#include "tests/compiler/random_values.h"

#include <cmath>
#include <limits>

namespace outboard::test {

double RandomFloat(Random& random, DType dtype, int kind) {
  if (kind == 0)
    return static_cast<double>(random.Below(33) - 16) / 8;  // sums and products are often exact
  if (kind == 1) {
    const double v = 4 * random.Unit() - 2;
    return std::abs(v) < 0.01 ? 0 : RoundTo(dtype, v);
  }
  const double corners[] = {0.0,
                            -0.0,
                            1,
                            -1,
                            0.5,
                            3,
                            -7.5,
                            std::numeric_limits<double>::infinity(),
                            -std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::quiet_NaN(),
                            1e-7,
                            -6e-8,
                            1e-40,
                            65504,
                            -448,
                            3e38,
                            1e300,
                            2147483648.0,
                            -9.3e18};
  return RoundTo(dtype, corners[random.Below(std::size(corners))]);
}

int64_t RandomInt(Random& random, DType dtype, int kind) {
  if (IsBool(dtype)) return random.Below(2);
  if (kind == 0) return WrapTo(dtype, random.Below(9) - (IsSigned(dtype) ? 3 : 0));
  if (kind == 1) return WrapTo(dtype, static_cast<int64_t>(random.Bits()));
  const int64_t corners[] = {0,  1, -1, 2, 7, 8, IntMin(dtype), IntMax(dtype), IntMin(dtype) + 1,
                             31, 64};
  return WrapTo(dtype, corners[random.Below(std::size(corners))]);
}

}  // namespace outboard::test
