// Where elements of operands are in their views (CoordinatesOf of product.h).
#include <utility>

#include "compiler/program/hopper/product.h"

namespace outboard::program {

std::vector<ValueId> CoordinatesOf(ProgramBuilder& b, const HopperShape& shape,
                                   const HopperOperand& operand, ValueId batch, ValueId row,
                                   ValueId k) {
  const auto within = [&](ValueId index, int64_t inner) {
    return inner > 0 ? b.Modulo(index, inner) : index;
  };
  std::vector<ValueId> at = {within(k, operand.inner_k), within(row, operand.inner_rows)};
  if (operand.along_rows) std::swap(at[0], at[1]);
  if (operand.inner_k > 0) at.push_back(b.Divide(k, operand.inner_k));
  if (operand.inner_rows > 0) at.push_back(b.Divide(row, operand.inner_rows));
  // The innermost of the batch comes first.
  for (size_t i = shape.batch.size(); i-- > 0;) {
    at.push_back(i == 0 ? batch : b.Modulo(batch, shape.batch[i]));
    batch = b.Divide(batch, shape.batch[i]);
  }
  return at;
}

}  // namespace outboard::program
