#include "compiler/program/interpret_matrix.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "compiler/program/interpret_lanes.h"

namespace outboard::program {
namespace {

// What MMA reads of an f32.
double Tf32Of(int64_t bits) {
  const uint32_t narrow = std::bit_cast<uint32_t>(static_cast<float>(AsFloat(bits)));
  return std::bit_cast<float>(narrow & ~uint32_t{0x1fff});
}

}  // namespace

double CutSum(absl::Span<const double> terms, int digits) {
  double largest = 0, sum = 0;
  for (const double term : terms) {
    if (!std::isfinite(term)) {
      for (const double all : terms) sum += all;
      return sum;
    }
    largest = std::max(largest, std::abs(term));
  }
  if (largest == 0) return 0;
  const double unit = std::ldexp(1, std::max(std::ilogb(largest) + 1 - digits, -149));
  for (const double term : terms) sum += std::trunc(term / unit) * unit;
  if (sum == 0) return 0;
  const double last = std::ldexp(1, std::max(std::ilogb(sum) + 1 - kDigitsOfF32, -149));
  sum = std::trunc(sum / last) * last;
  return std::abs(sum) <= std::numeric_limits<float>::max()
             ? sum
             : std::copysign(std::numeric_limits<double>::infinity(), sum);
}

void MultiplyMatrices(DType dtype, const WarpRegisters& threads, int32_t a_place, int32_t b_place,
                      int32_t c_place, int32_t out_place) {
  constexpr int kDepthMax = 32;
  double a[16][kDepthMax], b[kDepthMax][8], c[16][8];
  const int packed = MmaPacked(dtype), depth = MmaDepth(dtype);
  const bool f32 = dtype == DType::kF32;
  const bool cut = f32 || packed == 4;
  const auto each = [&](MmaOperand operand, int lanes, int32_t place, const auto& visit) {
    for (int t = 0; t < kWarpThreads; ++t)
      for (int lane = 0; lane < lanes; ++lane)
        visit(MmaElement(operand, packed, t, lane), threads[t][place + lane]);
  };
  const auto number = [&](int64_t value) { return f32 ? Tf32Of(value) : AsFloat(value); };
  each(MmaOperand::kA, 4 * packed, a_place,
       [&](MatrixPlace p, int64_t value) { a[p.row][p.column] = number(value); });
  each(MmaOperand::kB, 2 * packed, b_place,
       [&](MatrixPlace p, int64_t value) { b[p.row][p.column] = number(value); });
  each(MmaOperand::kC, 4, c_place,
       [&](MatrixPlace p, int64_t value) { c[p.row][p.column] = AsFloat(value); });
  each(MmaOperand::kC, 4, out_place, [&](MatrixPlace p, int64_t& out) {
    double terms[kDepthMax + 1];
    for (int k = 0; k < depth; ++k) terms[k] = a[p.row][k] * b[k][p.column];
    terms[depth] = c[p.row][p.column];
    double sum = 0;
    if (cut) {
      sum = CutSum(absl::MakeConstSpan(terms, static_cast<size_t>(depth) + 1),
                   f32 ? kDigitsOfF32 : kDigitsOfSmallSums);
    } else {
      sum = terms[depth];
      for (int k = 0; k < depth; ++k) sum += terms[k];
    }
    out = AsBits(RoundTo(DType::kF32, sum));
  });
}

void MultiplyByAmd(MatrixUnit unit, absl::Span<int64_t* const> registers, int32_t a_place,
                   int32_t b_place, int32_t c_place, int32_t out_place) {
  constexpr int kSide = 16;
  double a[kSide][kSide], b[kSide][kSide], c[kSide][kSide];
  const auto each = [&](MmaOperand operand, int lanes, int32_t place, const auto& visit) {
    for (int t = 0; t < ThreadsOf(unit); ++t)
      for (int lane = 0; lane < lanes; ++lane)
        visit(AmdElement(unit, operand, t, lane), registers[t][place + lane]);
  };
  const int operands = AmdOperandLanes(unit), sums = AmdSumLanes(unit);
  each(MmaOperand::kA, operands, a_place,
       [&](MatrixPlace p, int64_t value) { a[p.row][p.column] = AsFloat(value); });
  each(MmaOperand::kB, operands, b_place,
       [&](MatrixPlace p, int64_t value) { b[p.row][p.column] = AsFloat(value); });
  each(MmaOperand::kC, sums, c_place,
       [&](MatrixPlace p, int64_t value) { c[p.row][p.column] = AsFloat(value); });
  each(MmaOperand::kC, sums, out_place, [&](MatrixPlace p, int64_t& out) {
    double sum = c[p.row][p.column];
    for (int k = 0; k < kSide; ++k) sum += a[p.row][k] * b[k][p.column];
    out = AsBits(RoundTo(DType::kF32, sum));
  });
}

void DistributeMatrices(DType dtype, const MatrixRows& rows, bool transposed,
                        const WarpRegisters& threads, int32_t out) {
  const int packed = MmaPacked(dtype);
  for (int t = 0; t < kWarpThreads; ++t)
    for (int lane = 0; lane < 4 * packed; ++lane) {
      const int row = t / 4, column = t % 4 * packed + lane % packed, matrix = lane / packed;
      threads[t][out + lane] =
          rows[matrix * 8 + (transposed ? column : row)][transposed ? row : column];
    }
}

}  // namespace outboard::program
