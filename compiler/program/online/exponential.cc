#include "compiler/program/online/exponential.h"

#include <bit>
#include <cmath>

#include "compiler/ir/accessors.h"
#include "compiler/optimize/operands/online.h"

namespace outboard::program {
namespace {

bool IsMinusInfinity(const UOp* node) {
  return node->op == Op::kConst && IsFloat(node->dtype) &&
         std::bit_cast<double>(ConstantBits(node)) == -INFINITY;
}

// Products by these keep order, and the digits of all but subnormal numbers. What is finite stays
// finite, and infinities stay, so that a row of infinities is one with and without the factor; by a
// factor beyond 1 a finite number can become infinite.
bool IsFactor(const UOp* node) {
  constexpr double kMin = 0x1p-64;
  if (node->op != Op::kConst || node->dtype != DType::kF32) return false;
  const double factor = std::bit_cast<double>(ConstantBits(node));
  return factor >= kMin && factor <= 1;
}

UnitExponential Unscaled(const UOp* max) {
  const UnitExponential whole{.max = max, .value = max->src[0]};
  UnitExponential unit = whole;
  while (unit.value->op == Op::kWhere) {
    const UOp* const condition = unit.value->src[0];
    const bool hides = IsMinusInfinity(unit.value->src[1]);
    if (!hides && !IsMinusInfinity(unit.value->src[2])) break;
    unit.hidden.emplace_back(condition, hides);
    unit.value = unit.value->src[hides ? 2 : 1];
  }
  if (unit.value->op != Op::kMul) return whole;
  for (const size_t side : {0, 1}) {
    if (!IsFactor(unit.value->src[side])) continue;
    unit.factor = std::bit_cast<double>(ConstantBits(unit.value->src[side]));
    unit.value = unit.value->src[1 - side];
    return unit;
  }
  return whole;
}

}  // namespace

absl::flat_hash_map<const UOp*, UnitExponential> UnitExponentialsOf(const codegen::LoopNest& kernel,
                                                                    int range) {
  absl::flat_hash_map<const UOp*, UnitExponential> units;
  for (const auto& [exponential, max] : codegen::ExponentialsOf(kernel, range))
    if (max->dtype == DType::kF32) units[exponential] = Unscaled(max);
  return units;
}

}  // namespace outboard::program
