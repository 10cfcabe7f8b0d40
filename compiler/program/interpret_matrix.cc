#include "compiler/program/interpret_matrix.h"

#include "compiler/ir/dtype.h"
#include "compiler/program/interpret_lanes.h"

namespace outboard::program {

void MultiplyMatrices(const WarpRegisters& threads, int32_t a_place, int32_t b_place,
                      int32_t c_place, int32_t out_place) {
  double a[16][16], b[16][8], c[16][8];
  const auto each = [&](MmaOperand operand, int lanes, int32_t place, const auto& visit) {
    for (int t = 0; t < kWarpThreads; ++t)
      for (int lane = 0; lane < lanes; ++lane)
        visit(MmaElement(operand, t, lane), threads[t][place + lane]);
  };
  each(MmaOperand::kA, 8, a_place,
       [&](MatrixPlace p, int64_t value) { a[p.row][p.column] = AsFloat(value); });
  each(MmaOperand::kB, 4, b_place,
       [&](MatrixPlace p, int64_t value) { b[p.row][p.column] = AsFloat(value); });
  each(MmaOperand::kC, 4, c_place,
       [&](MatrixPlace p, int64_t value) { c[p.row][p.column] = AsFloat(value); });
  each(MmaOperand::kC, 4, out_place, [&](MatrixPlace p, int64_t& out) {
    double sum = c[p.row][p.column];
    for (int k = 0; k < 16; ++k) sum += a[p.row][k] * b[k][p.column];
    out = AsBits(RoundTo(DType::kF32, sum));
  });
}

void DistributeMatrices(const MatrixRows& rows, bool transposed, const WarpRegisters& threads,
                        int32_t out) {
  for (int t = 0; t < kWarpThreads; ++t)
    for (int lane = 0; lane < 8; ++lane) {
      const int row = t / 4, column = t % 4 * 2 + lane % 2, matrix = lane / 2;
      threads[t][out + lane] =
          rows[matrix * 8 + (transposed ? column : row)][transposed ? row : column];
    }
}

}  // namespace outboard::program
