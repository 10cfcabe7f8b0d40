#include "compiler/program/lower/transpose.h"

#include <bit>

#include "base/check.h"

namespace outboard::program {

// Halves change places along the diagonal, then quarters inside of each, and so on.
void Transpose(ProgramBuilder& b, std::span<ValueId> square) {
  const auto n = static_cast<int>(square.size());
  OB_CHECK(std::has_single_bit(square.size()) && b.at(square[0]).lanes == n);
  const DType dtype = b.at(square[0]).dtype;
  const auto lane = [&](ValueId vector, int number) {
    return b.Add({.code = Code::kLane, .dtype = dtype, .src = {vector}, .imm = {number, 0, 0}});
  };
  for (int distance = n / 2; distance > 0; distance /= 2)
    for (int i = 0; i < n; ++i) {
      if (i & distance) continue;
      const ValueId upper = square[i], lower = square[i + distance];
      Instruction low{.code = Code::kLanes, .dtype = dtype, .lanes = n}, high = low;
      for (int k = 0; k < n; ++k) {
        const bool second = k & distance;
        low.src.push_back(second ? lane(lower, k - distance) : lane(upper, k));
        high.src.push_back(second ? lane(lower, k) : lane(upper, k + distance));
      }
      square[i] = b.Add(std::move(low));
      square[i + distance] = b.Add(std::move(high));
    }
}

}  // namespace outboard::program
