// Products by mma.sync, added to sums that a warp has in registers: of 16 rows by the unit's depth,
// and 8 columns, which are one half of a fragment of 16.
#pragma once

#include "compiler/program/hopper/two_tf32.h"
#include "compiler/program/program.h"

namespace outboard::program {

inline ValueId ZeroSums(ProgramBuilder& b) { return b.Splat(b.Const(DType::kF32, 0), 4); }

// sums + rows * columns, by one instruction.
inline ValueId AddProduct(ProgramBuilder& b, ValueId rows, ValueId columns, int64_t half,
                          ValueId sums) {
  return b.Add({.code = Code::kMma,
                .dtype = DType::kF32,
                .lanes = 4,
                .src = {rows, columns, sums},
                .imm = {half, 0, 0}});
}

// The same of f32 by three products of TF32. The unit sums these from 0 on, for it cuts digits off
// what it adds, which must not add up; to `sums` they are added as everything in f32 is.
inline ValueId AddThreeProducts(ProgramBuilder& b, const TwoTf32& rows, const TwoTf32& columns,
                                int64_t half, ValueId sums) {
  ValueId products = AddProduct(b, rows.low, columns.high, half, ZeroSums(b));
  products = AddProduct(b, rows.high, columns.low, half, products);
  products = AddProduct(b, rows.high, columns.high, half, products);
  return b.Alu(Op::kAdd, DType::kF32, {sums, products});
}

}  // namespace outboard::program
