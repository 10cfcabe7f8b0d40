// Functions that make nodes from sources known to be legal: for rewrites, tests and everything else
// that is not input. A broken rule here is a bug of ours and ends the process; if legality depends
// on a caller's input, use Graph::Make and its Status.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/uop.h"

namespace outboard {

// Scalars. Floats are rounded to `dtype`, integers must be in its range.
const UOp* ConstInt(Graph& g, DType dtype, int64_t value);
const UOp* ConstFloat(Graph& g, DType dtype, double value);
// `value` as an integer, bool or float, depending on `dtype`; for 0, 1, -1 and the like.
const UOp* ConstOf(Graph& g, DType dtype, double value);
inline const UOp* ConstIndex(Graph& g, int64_t value) { return ConstInt(g, DType::kI64, value); }
// The scalar broadcast to `shape`.
const UOp* Full(Graph& g, const UOp* scalar, ShapeView shape);

const UOp* Param(Graph& g, int64_t slot, DType dtype, ShapeView shape);
const UOp* BufferNode(Graph& g, uint64_t name, DType dtype, ShapeView shape);
const UOp* Var(Graph& g, int64_t slot, int64_t min, int64_t max);
const UOp* Iota(Graph& g, DType dtype, const Dim& length);

const UOp* Alu(Graph& g, Op op, const UOp* a);
const UOp* Alu(Graph& g, Op op, const UOp* a, const UOp* b);
const UOp* Alu(Graph& g, Op op, const UOp* a, const UOp* b, const UOp* c);
inline const UOp* Add(Graph& g, const UOp* a, const UOp* b) { return Alu(g, Op::kAdd, a, b); }
inline const UOp* Mul(Graph& g, const UOp* a, const UOp* b) { return Alu(g, Op::kMul, a, b); }
inline const UOp* Where(Graph& g, const UOp* c, const UOp* a, const UOp* b) {
  return Alu(g, Op::kWhere, c, a, b);
}
const UOp* Cast(Graph& g, const UOp* x, DType dtype);  // x itself if it already has the type
const UOp* Bitcast(Graph& g, const UOp* x, DType dtype);

// Movement. A movement that changes nothing returns x.
const UOp* Reshape(Graph& g, const UOp* x, ShapeView dims);
const UOp* Expand(Graph& g, const UOp* x, ShapeView dims);
const UOp* Permute(Graph& g, const UOp* x, absl::Span<const int64_t> axes);
const UOp* Flip(Graph& g, const UOp* x, absl::Span<const int64_t> axes);
// lo_hi: lo0, hi0, lo1, hi1 ...; begin_end likewise.
const UOp* Pad(Graph& g, const UOp* x, ShapeView lo_hi);
const UOp* Shrink(Graph& g, const UOp* x, ShapeView begin_end);

// `axes` in any order; returns x if there are none.
const UOp* Reduce(Graph& g, Op op, const UOp* x, std::vector<int64_t> axes);
const UOp* Sink(Graph& g, Sources results);

// Encodes dimensions for Graph::Make: appends numbers or kSymbolicDim to arg, expressions to src.
void AppendDims(ShapeView dims, std::vector<int64_t>& arg, std::vector<const UOp*>& src);

}  // namespace outboard
