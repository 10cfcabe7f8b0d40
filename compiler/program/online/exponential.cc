#include "compiler/program/online/exponential.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/kernel/decompose_math.h"
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

// `unit` with the factor taken out of its value, and masks around it.
UnitExponential Unscaled(const UnitExponential& whole) {
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

// Of a kernel: an attention's gradients have two.
constexpr int kDifferencesMax = 16;

// Whether it is a reduction for a step, as scores are.
bool IsScore(const codegen::LoopNest& kernel, const UOp* node, int range) {
  return node->op == Op::kReduceLoop && (kernel.DepsOf(node) >> range & 1) != 0;
}

// Whether it is computed from scores, of a row and a step.
bool ReadsScore(const codegen::LoopNest& kernel, const UOp* value, int range) {
  if ((kernel.DepsOf(value) >> range & 1) == 0) return false;
  const std::vector<const UOp*> nodes = PostOrder(value);
  return std::any_of(nodes.begin(), nodes.end(),
                     [&](const UOp* node) { return IsScore(kernel, node, range); });
}

// Whether each score has a value of its own: of all ranges that scores are of.
bool IsOfEachScore(const codegen::LoopNest& kernel, const UOp* load, int range) {
  return std::any_of(kernel.nodes.begin(), kernel.nodes.end(), [&](const UOp* node) {
    return IsScore(kernel, node, range) && (kernel.DepsOf(node) & ~kernel.DepsOf(load)) == 0;
  });
}

}  // namespace

absl::flat_hash_map<const UOp*, UnitExponential> UnitExponentialsOf(const codegen::LoopNest& kernel,
                                                                    int range) {
  absl::flat_hash_map<const UOp*, UnitExponential> units;
  for (const auto& [exponential, max] : codegen::ExponentialsOf(kernel, range))
    if (max->dtype == DType::kF32)
      units[exponential] = Unscaled({.max = max, .value = max->src[0]});
  return units;
}

absl::flat_hash_map<const UOp*, UnitExponential> LoadedExponentialsOf(
    const codegen::LoopNest& kernel, int range) {
  absl::flat_hash_map<const UOp*, UnitExponential> units;
  const absl::flat_hash_set<const UOp*> nodes(kernel.nodes.begin(), kernel.nodes.end());
  int looked_at = 0;
  for (const UOp* difference : kernel.nodes) {
    if (difference->op != Op::kAdd || difference->dtype != DType::kF32) continue;
    for (const size_t side : {0, 1}) {
      const UOp *const minus = difference->src[side], *const x = difference->src[1 - side];
      if (minus->op != Op::kNeg || minus->src[0]->op != Op::kLoad ||
          IsOfEachScore(kernel, minus->src[0], range) || looked_at++ >= kDifferencesMax ||
          !ReadsScore(kernel, x, range))
        continue;
      // As arithmetic: equal nodes are one.
      const UOp* const exponential = codegen::DecomposeTranscendentals(
          *kernel.graph, Alu(*kernel.graph, Op::kExp, difference));
      if (!nodes.contains(exponential)) continue;
      const UnitExponential whole{.max = minus->src[0], .value = x, .loaded = true};
      const UnitExponential unit = Unscaled(whole);
      int exponent = 0;
      const bool is_exact = std::frexp(unit.factor, &exponent) == 0.5;
      units[exponential] = is_exact ? unit : whole;
    }
  }
  return units;
}

absl::flat_hash_set<const UOp*> LoadedQuotientsOf(
    const codegen::LoopNest& kernel, int range,
    const absl::flat_hash_map<const UOp*, UnitExponential>& loaded) {
  absl::flat_hash_set<const UOp*> quotients;
  if (loaded.empty()) return quotients;
  std::vector<const UOp*> exponents;
  for (const auto& [exponential, unit] : loaded) exponents.push_back(unit.value);
  const std::vector<const UOp*> below = PostOrder(exponents);
  const absl::flat_hash_set<const UOp*> in_exponents(below.begin(), below.end());
  int looked_at = 0;
  for (const UOp* node : kernel.nodes)
    if (node->op == Op::kFDiv && node->dtype == DType::kF32 && node->src[1]->op == Op::kLoad &&
        !in_exponents.contains(node) && !IsOfEachScore(kernel, node->src[1], range) &&
        looked_at++ < kDifferencesMax && ReadsScore(kernel, node->src[0], range))
      quotients.insert(node);
  return quotients;
}

}  // namespace outboard::program
