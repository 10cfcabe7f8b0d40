// Sizes of the ring of stages that products by warpgroups have (product.h): what the product, its
// limits and the places of what it gathers have to agree on.
#pragma once

#include <cstdint>

#include "compiler/divide_up.h"
#include "compiler/program/hopper/product.h"

namespace outboard::program {

inline constexpr int64_t kConsumers = 2;  // warpgroups that multiply

// Of a stage, the k: 128 bytes, a row of a swizzle.
inline int64_t DepthOf(DType dtype) { return MappedTensor::kSwizzleBytes / ByteWidth(dtype); }

// Whether an operand is gathered element by element.
inline bool GathersElements(const HopperShape& shape) {
  return shape.addends[0].a.run == 1 || shape.addends[0].b.run == 1;
}

// Whether A, or B, of some addend is stored across k.
inline bool AnyAAlongRows(const HopperShape& shape) {
  for (const HopperAddend& addend : shape.addends)
    if (addend.a.along_rows) return true;
  return false;
}
inline bool AnyBAlongRows(const HopperShape& shape) {
  for (const HopperAddend& addend : shape.addends)
    if (addend.b.along_rows) return true;
  return false;
}

// Of 8-bit floats the unit adds with few digits, and of f32 by three products it cuts off what f32
// rounds: sums of a stage are added in f32. They take as many registers as the whole ones.
inline bool SumsByStage(const HopperShape& shape) {
  return ByteWidth(shape.dtype) == 1 || shape.three_tf32;
}

}  // namespace outboard::program
