#include "compiler/search/compare.h"

#include <algorithm>
#include <cmath>

#include "compiler/divide_up.h"
#include "compiler/ir/build.h"

namespace outboard::search {
namespace {

// Vectors of 16 bytes begin at multiples of so many elements, whatever their type.
constexpr int64_t kElementsOfVector = 16;

const UOp* Magnitude(Graph& g, const UOp* x) {
  return Alu(g, Op::kMax, x, Alu(g, Op::kNeg, x));
}

// As IsWithinTolerance, the other way round.
const UOp* Differs(Graph& g, DType dtype, const UOp* got, const UOp* want) {
  if (!IsFloat(dtype)) return Alu(g, Op::kCmpNe, got, want);
  const DType wide = dtype == DType::kF64 ? dtype : DType::kF32;
  const UOp *const x = Cast(g, got, wide), *const y = Cast(g, want, wide);
  const UOp* const distance = Magnitude(g, Add(g, x, Alu(g, Op::kNeg, y)));
  const UOp* const bound = Mul(g, ConstFloat(g, wide, ToleranceOf(dtype)),
                               Alu(g, Op::kMax, Magnitude(g, y), ConstFloat(g, wide, 1)));
  const UOp* const within = Alu(g, Op::kCmpLt, distance, bound);
  const UOp* const neither =
      Alu(g, Op::kAnd, Alu(g, Op::kCmpNe, x, x), Alu(g, Op::kCmpNe, y, y));
  const UOp* const equal =
      Alu(g, Op::kOr, Alu(g, Op::kCmpEq, x, y), Alu(g, Op::kOr, within, neither));
  return Alu(g, Op::kCmpNe, equal, ConstInt(g, DType::kBool, 1));
}

}  // namespace

char UnwrittenByte(DType dtype) { return IsFloat(dtype) ? '\xFF' : '\xA5'; }

double ToleranceOf(DType dtype) {
  switch (dtype) {
    case DType::kF64: return 1e-9;
    case DType::kF32: return 1e-3;
    case DType::kF16: return 2e-2;
    case DType::kBF16: return 5e-2;
    default: return 0.3;  // fp8
  }
}

bool IsWithinTolerance(DType dtype, double got, double want) {
  // Of an infinity the bound is one, too, and no difference is below it.
  return got == want || (std::isnan(got) && std::isnan(want)) ||
         std::abs(got - want) < ToleranceOf(dtype) * std::max(1.0, std::abs(want));
}

const UOp* DifferencesKernel(Graph& g, DType dtype, int64_t elements) {
  const int64_t columns =
      DivideUp(DivideUp(elements, kDifferenceCounts), kElementsOfVector) * kElementsOfVector;
  const auto range = [&](int64_t id, int64_t extent, RangeKind kind) {
    return g.MakeChecked(Op::kRange, DType::kVoid, {}, {id, extent, static_cast<int64_t>(kind)});
  };
  const UOp* const row = range(0, kDifferenceCounts, RangeKind::kOutput);
  const UOp* const column = range(1, columns, RangeKind::kReduce);
  const UOp* const index = Add(g, Mul(g, row, ConstIndex(g, columns)), column);
  // A bool is a byte here: one that nobody wrote is neither true nor false.
  const DType stored = IsBool(dtype) ? DType::kU8 : dtype;
  const UOp* const gate = Alu(g, Op::kCmpLt, index, ConstIndex(g, elements));
  const auto load = [&](int64_t slot) {
    const UOp* const at = g.MakeChecked(
        Op::kIndex, DType::kVoid,
        {g.MakeChecked(Op::kGlobal, stored, {}, {slot, elements}), index});
    return g.MakeChecked(Op::kLoad, DType::kVoid, {at, gate, ConstOf(g, stored, 0)});
  };
  const UOp* const differs = Where(g, Differs(g, stored, load(1), load(2)),
                                   ConstInt(g, DType::kI32, 1), ConstInt(g, DType::kI32, 0));
  const UOp* const count = g.MakeChecked(Op::kReduceLoop, DType::kVoid, {differs, column},
                                         {static_cast<int64_t>(Op::kAdd)});
  const UOp* const to = g.MakeChecked(
      Op::kIndex, DType::kVoid,
      {g.MakeChecked(Op::kGlobal, DType::kI32, {}, {0, kDifferenceCounts}), row});
  return Sink(g, {g.MakeChecked(Op::kStore, DType::kVoid, {to, count})});
}

}  // namespace outboard::search
