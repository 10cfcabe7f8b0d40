#include "compiler/shard/products.h"

#include "compiler/ir/accessors.h"
#include "compiler/ir/sums/gather.h"

namespace outboard::shard {

// What is below is of a body, perhaps, which is no part of the frame around the call.
static bool IsOfFunctions(Op op) {
  return op == Op::kCall || op == Op::kFunction || op == Op::kTuple || op == Op::kGetTuple;
}

const UOp* ParamUnder(const UOp* node) {
  constexpr int kStepsMax = 64;
  for (int steps = 0; node->own_sources() == 1 && steps < kStepsMax; ++steps) {
    if (node->op == Op::kReduce || IsOfFunctions(node->op)) return nullptr;
    node = node->src[0];
  }
  return node->op == Op::kParam ? node : nullptr;
}

const UOp* ValueUnder(const UOp* node) {
  if (node->op == Op::kLayout) return nullptr;  // it may send what it has, which is stored for it
  if (IsOfFunctions(node->op)) return nullptr;
  if (node->own_sources() == 1) return node->src[0];
  if (node->op == Op::kWhere) return node->src[1];
  if (node->op != Op::kMul) return nullptr;
  const bool first = ComparesAnIota(node->src[0]), second = ComparesAnIota(node->src[1]);
  return first == second ? nullptr : node->src[first ? 1 : 0];
}

bool IsRepeated(const UOp* node, int dim) {
  for (int steps = 0; steps < 8; ++steps) {
    if (node->op == Op::kExpand && node->src[0]->shape[dim] == Dim(1)) return true;
    if (node->op == Op::kPermute) {
      dim = static_cast<int>(PermuteOf(node).axis(dim));
    } else if (node->op != Op::kExpand && node->op != Op::kCast) {
      return false;
    }
    node = node->src[0];
  }
  return false;
}

// Whether all elements of `node` are one, as a factor that an optimizer scales by is.
static bool IsOneValue(const UOp* node) {
  for (int dim = 0; dim < node->rank(); ++dim)
    if (node->shape[dim] != Dim(1) && !IsRepeated(node, dim)) return false;
  return true;
}

std::optional<Sharding> WeightsCut(const Mesh& mesh, const UOp* product, AxisSet axes) {
  if (product->op != Op::kMul || !IsFloat(product->dtype) || ReadsRows(product))
    return std::nullopt;
  const int64_t parts = PartsOf(mesh, axes);
  for (const int factor : {1, 0}) {
    const UOp* const weights = product->src[factor];
    const UOp* const other = product->src[1 - factor];
    if (ParamUnder(weights) == nullptr || ParamUnder(other) != nullptr || IsOneValue(other))
      continue;
    for (const bool divides : {true, false})
      for (int dim = product->rank() - 1; dim >= 0; --dim) {
        const Dim& length = product->shape[dim];
        if (!length.is_const() || length.value() < parts ||
            (length.value() % parts == 0) != divides)
          continue;
        if (!IsRepeated(weights, dim) && IsRepeated(other, dim))
          return CutSharding(mesh, product->shape, dim, axes);
      }
  }
  return std::nullopt;
}

}  // namespace outboard::shard
