// Operands of a row of the table, drawn at random and rounded to their type: the same numbers for
// the expectation and for the operator.
#pragma once

#include <cstdint>

#include "tests/client/operators/table.h"

namespace outboard::operators {

int64_t CountOf(const Dims& dims);
Array Draw(const Operand& operand, DType dtype, uint32_t seed);
Tensor Upload(const Array& x, DType dtype);

struct Drawn {
  Arrays arrays;
  Tensors tensors;
};

Drawn DrawAll(const Row& row, DType dtype);

}  // namespace outboard::operators
