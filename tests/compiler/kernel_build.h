// Builds kernels by hand, for tests and benchmarks.
#pragma once

#include <vector>

#include "compiler/ir/build.h"
#include "compiler/ir/uop.h"

namespace outboard::test {

inline const UOp* Range(Graph& g, int64_t id, int64_t extent, RangeKind kind = RangeKind::kOutput) {
  return g.MakeChecked(Op::kRange, DType::kVoid, {}, {id, extent, static_cast<int64_t>(kind)});
}
inline const UOp* ReduceRange(Graph& g, int64_t id, int64_t extent) {
  return Range(g, id, extent, RangeKind::kReduce);
}

inline const UOp* At(Graph& g, int64_t slot, DType dtype, int64_t elements, const UOp* index) {
  return g.MakeChecked(Op::kIndex, DType::kVoid,
                       {g.MakeChecked(Op::kGlobal, dtype, {}, {slot, elements}), index});
}
inline const UOp* LoadAt(Graph& g, int64_t slot, DType dtype, int64_t elements, const UOp* index) {
  return g.MakeChecked(Op::kLoad, DType::kVoid, {At(g, slot, dtype, elements, index)});
}
inline const UOp* GatedLoadAt(Graph& g, int64_t slot, DType dtype, int64_t elements,
                              const UOp* index, const UOp* gate, const UOp* otherwise) {
  return g.MakeChecked(Op::kLoad, DType::kVoid,
                       {At(g, slot, dtype, elements, index), gate, otherwise});
}
inline const UOp* StoreAt(Graph& g, int64_t slot, int64_t elements, const UOp* index,
                          const UOp* value) {
  return g.MakeChecked(Op::kStore, DType::kVoid,
                       {At(g, slot, value->dtype, elements, index), value});
}
inline const UOp* Fold(Graph& g, Op op, const UOp* value, std::vector<const UOp*> ranges) {
  ranges.insert(ranges.begin(), value);
  return g.MakeChecked(Op::kReduceLoop, DType::kVoid, ranges, {static_cast<int64_t>(op)});
}

// The row-major index of `ranges` in an array of `dims`.
inline const UOp* RowMajor(Graph& g, const std::vector<const UOp*>& indices,
                           const std::vector<int64_t>& dims) {
  const UOp* sum = nullptr;
  int64_t stride = 1;
  for (size_t i = indices.size(); i-- > 0; stride *= dims[i]) {
    const UOp* const term = stride == 1 ? indices[i] : Mul(g, indices[i], ConstIndex(g, stride));
    sum = sum == nullptr ? term : Add(g, term, sum);
  }
  return sum;
}

// -1 < value && value < extent
inline const UOp* Within(Graph& g, const UOp* value, int64_t extent) {
  return Alu(g, Op::kAnd, Alu(g, Op::kCmpLt, ConstIndex(g, -1), value),
             Alu(g, Op::kCmpLt, value, ConstIndex(g, extent)));
}

}  // namespace outboard::test
