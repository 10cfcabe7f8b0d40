#include "compiler/optimize/cost.h"

#include <algorithm>

namespace outboard::optimize {

double OpCost(Op op, const CostTable& costs) {
  switch (op) {
    case Op::kThreefry: return costs.threefry;
    case Op::kExp:
    case Op::kExp2:
    case Op::kLog:
    case Op::kLog2: return costs.exponential;
    case Op::kTanh: return costs.tanh;
    case Op::kSin:
    case Op::kCos: return costs.sine;
    case Op::kFDiv:
    case Op::kSqrt: return costs.division;
    default: return IsAlu(op) || op == Op::kLoad || op == Op::kCast ? 1 : 0;
  }
}

double OpSize(Op op, DType dtype, const CostTable& costs) {
  if (dtype != DType::kF64) return OpCost(op, costs);
  switch (op) {
    case Op::kExp:
    case Op::kExp2:
    case Op::kLog:
    case Op::kLog2: return 50;
    case Op::kTanh: return 100;
    case Op::kSin:
    case Op::kCos: return 400;
    default: return OpCost(op, costs);
  }
}

double RecomputeForMemory(const CostTable& costs) { return costs.memory_trip; }

double RecomputeForKernel(const CostTable& costs) { return costs.memory_trip + costs.kernel_share; }

double RowsOfUnpacked(const Target& target) {
  constexpr double kOfThread = 8, kOfBlock = 64;
  return target.block_threads > 1 ? kOfBlock : kOfThread;
}

int64_t ReusedBytesMax(const Target& target) {
  return std::max<int64_t>(1 << 20, target.l2_bytes / 2);
}

int64_t LanesMin(const Target& target) { return target.vector_bytes / 4 / 2; }

}  // namespace outboard::optimize
