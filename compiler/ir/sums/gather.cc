#include "compiler/ir/sums/gather.h"

#include <utility>
#include <vector>

namespace outboard {

static constexpr int kStepsMax = 64;  // "a few nodes": a walk of all would cost their square

bool ComparesAnIota(const UOp* node) {
  std::vector<std::pair<const UOp*, bool>> open = {{node, false}};
  for (int steps = 0; !open.empty() && steps < kStepsMax; ++steps) {
    const auto [at, compared] = open.back();
    open.pop_back();
    if (compared && at->op == Op::kIota) return true;
    const bool now = compared || at->op == Op::kCmpEq || at->op == Op::kCmpNe;
    if (at->op == Op::kReduce || at->op == Op::kCall || at->op == Op::kParam) continue;
    for (int i = 0; i < at->own_sources(); ++i) open.push_back({at->src[i], now});
  }
  return false;
}

bool ReadsRows(const UOp* product) {
  for (int i = 0; i < 2; ++i)
    if (ComparesAnIota(product->src[i])) return true;
  return false;
}

bool IsGather(const UOp* reduce) {
  const UOp* x = reduce->src[0];
  for (int steps = 0; steps < kStepsMax && x->own_sources() == 1; ++steps) {
    if (x->op == Op::kReduce || x->op == Op::kCall) return false;
    x = x->src[0];
  }
  return (x->op == Op::kMul || x->op == Op::kWhere) && ReadsRows(x);
}

}  // namespace outboard
