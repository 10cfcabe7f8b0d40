// Kernels for tests of whoever passes kernels on: a small one, and one that takes some memory to
// compile.
#pragma once

#include <string>

#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "tests/compiler/kernel_build.h"

namespace outboard::test {

// The encoding of out[i] = in[i] * in[i] over `count` elements: slot 0 is written, slot 1 read.
inline std::string SquareKernel(int64_t count) {
  Graph g;
  const UOp* const range = g.MakeChecked(Op::kRange, DType::kI64, {}, {0, count, 0});
  const auto place = [&](int64_t slot) {
    const UOp* const global = g.MakeChecked(Op::kGlobal, DType::kF32, {}, {slot, count});
    return g.MakeChecked(Op::kIndex, DType::kVoid, {global, range});
  };
  const UOp* const load = g.MakeChecked(Op::kLoad, DType::kVoid, {place(1)});
  return EncodeGraph(
             Sink(g, {g.MakeChecked(Op::kStore, DType::kVoid, {place(0), Mul(g, load, load)})}))
      ->bytes;
}

// A product of bf16 matrices of `side` rows and columns: by warpgroups, where there are such, with
// views of its operands and of its result.
inline std::string ProductKernel(int64_t side) {
  Graph g;
  const UOp *const m = Range(g, 0, side), *const n = Range(g, 1, side);
  const UOp* const k = ReduceRange(g, 2, side);
  const auto wide = [&](int64_t slot, const UOp* row, const UOp* column) {
    const UOp* const place = RowMajor(g, {row, column}, {side, side});
    return Cast(g, LoadAt(g, slot, DType::kBF16, side * side, place), DType::kF32);
  };
  const UOp* const sum = Fold(g, Op::kAdd, Mul(g, wide(1, m, k), wide(2, k, n)), {k});
  const UOp* const store = StoreAt(g, 0, side * side, RowMajor(g, {m, n}, {side, side}),
                                   Cast(g, sum, DType::kBF16));
  return EncodeGraph(Sink(g, {store}))->bytes;
}

// A kernel of many loads, for which the compiler's own tables grow, too.
inline std::string SumOfLoads(int64_t count) {
  Graph g;
  const UOp* const range = g.MakeChecked(Op::kRange, DType::kI64, {}, {0, 64, 0});
  const auto place = [&](int64_t slot) {
    const UOp* const global = g.MakeChecked(Op::kGlobal, DType::kF32, {}, {slot, 64});
    return g.MakeChecked(Op::kIndex, DType::kVoid, {global, range});
  };
  const UOp* sum = nullptr;
  for (int64_t i = 1; i <= count; ++i) {
    const UOp* const load = g.MakeChecked(Op::kLoad, DType::kVoid, {place(i)});
    sum = sum == nullptr ? load : Add(g, Mul(g, sum, sum), load);
  }
  return EncodeGraph(Sink(g, {g.MakeChecked(Op::kStore, DType::kVoid, {place(0), sum})}))->bytes;
}

}  // namespace outboard::test
