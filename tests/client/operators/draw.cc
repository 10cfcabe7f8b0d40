#include "tests/client/operators/draw.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace outboard::operators {
namespace {

double Fit(DType dtype, double value) {
  if (IsFloat(dtype)) return RoundTo(dtype, value);
  if (IsBool(dtype)) return value != 0;
  if (IsUnsigned(dtype)) value = std::abs(value);
  return static_cast<double>(WrapTo(dtype, static_cast<int64_t>(value)));
}

}  // namespace

int64_t CountOf(const Dims& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

Array Draw(const Operand& operand, DType dtype, uint32_t seed) {
  Array x = {operand.dims, operand.values};
  std::mt19937 random(seed);
  std::uniform_real_distribution<> uniform(operand.low, operand.high);
  if (x.values.empty())
    for (int64_t i = 0; i < CountOf(x.dims); ++i) x.values.push_back(uniform(random));
  for (double& value : x.values) {
    // The middle of a narrow interval, or a whole number would fall out of it.
    if (!IsFloat(dtype)) value = std::round(value);
    if (IsBool(dtype)) value = value > (operand.low + operand.high) / 2;
    value = Fit(dtype, value);
  }
  return x;
}

Tensor Upload(const Array& x, DType dtype) {
  std::string bytes(x.values.size() * ByteWidth(dtype), '\0');
  for (size_t i = 0; i < x.values.size(); ++i) {
    char* const place = bytes.data() + i * ByteWidth(dtype);
    if (IsFloat(dtype))
      StoreFloat(dtype, x.values[i], place);
    else
      StoreInt(dtype, static_cast<int64_t>(x.values[i]), place);
  }
  return Tensor::from_bytes(dtype, x.dims, bytes);
}

Drawn DrawAll(const Row& row, DType dtype) {
  Drawn drawn = {{{}, dtype}, {{}, dtype}};
  uint32_t seed = 1;
  for (const Operand& operand : row.operands) {
    const DType own = operand.dtype.value_or(dtype);
    drawn.arrays.operands.push_back(Draw(operand, own, seed++));
    drawn.tensors.operands.push_back(Upload(drawn.arrays.operands.back(), own));
  }
  return drawn;
}

}  // namespace outboard::operators
