#include "compiler/ir/build.h"

#include <bit>
#include <utility>

#include "compiler/ir/expr.h"

namespace outboard {
namespace {

const UOp* WithDims(Graph& g, Op op, DType dtype, std::vector<const UOp*> src,
                    std::vector<int64_t> arg, ShapeView dims) {
  AppendDims(dims, arg, src);
  return g.MakeChecked(op, dtype, src, arg);
}

}  // namespace

void AppendDims(ShapeView dims, std::vector<int64_t>& arg, std::vector<const UOp*>& src) {
  for (const Dim& dim : dims) {
    arg.push_back(dim.value());
    if (!dim.is_const()) src.push_back(dim.expression());
  }
}

const UOp* ConstInt(Graph& g, DType dtype, int64_t value) {
  return g.MakeChecked(Op::kConst, dtype, {}, {value});
}

const UOp* ConstFloat(Graph& g, DType dtype, double value) {
  return g.MakeChecked(Op::kConst, dtype, {}, {std::bit_cast<int64_t>(RoundTo(dtype, value))});
}

const UOp* ConstOf(Graph& g, DType dtype, double value) {
  return IsFloat(dtype) ? ConstFloat(g, dtype, value)
                        : ConstInt(g, dtype, WrapTo(dtype, static_cast<int64_t>(value)));
}

const UOp* Full(Graph& g, const UOp* scalar, ShapeView shape) {
  return Expr(g, scalar).full(shape).node();
}

const UOp* Param(Graph& g, int64_t slot, DType dtype, ShapeView shape) {
  return WithDims(g, Op::kParam, dtype, {}, {slot}, shape);
}

const UOp* BufferNode(Graph& g, uint64_t name, DType dtype, ShapeView shape) {
  return WithDims(g, Op::kBuffer, dtype, {}, {static_cast<int64_t>(name)}, shape);
}

const UOp* Var(Graph& g, int64_t slot, int64_t min, int64_t max) {
  return g.MakeChecked(Op::kVar, DType::kI64, {}, {slot, min, max});
}

const UOp* Iota(Graph& g, DType dtype, const Dim& length) {
  return WithDims(g, Op::kIota, dtype, {}, {}, ShapeView(&length, 1));
}

const UOp* Alu(Graph& g, Op op, const UOp* a) { return g.MakeChecked(op, DType::kVoid, {a}); }
const UOp* Alu(Graph& g, Op op, const UOp* a, const UOp* b) {
  return g.MakeChecked(op, DType::kVoid, {a, b});
}
const UOp* Alu(Graph& g, Op op, const UOp* a, const UOp* b, const UOp* c) {
  return g.MakeChecked(op, DType::kVoid, {a, b, c});
}

const UOp* Cast(Graph& g, const UOp* x, DType dtype) {
  return x->dtype == dtype ? x : g.MakeChecked(Op::kCast, dtype, {x});
}

const UOp* Bitcast(Graph& g, const UOp* x, DType dtype) {
  return x->dtype == dtype ? x : g.MakeChecked(Op::kBitcast, dtype, {x});
}

// Movements and reductions are Expr's.
const UOp* Reshape(Graph& g, const UOp* x, ShapeView dims) {
  return Expr(g, x).reshape(dims).node();
}
const UOp* Expand(Graph& g, const UOp* x, ShapeView dims) { return Expr(g, x).expand(dims).node(); }
const UOp* Permute(Graph& g, const UOp* x, absl::Span<const int64_t> axes) {
  return Expr(g, x).permute(axes).node();
}
const UOp* Flip(Graph& g, const UOp* x, absl::Span<const int64_t> axes) {
  return Expr(g, x).flip(axes).node();
}
const UOp* Pad(Graph& g, const UOp* x, ShapeView lo_hi) { return Expr(g, x).pad(lo_hi).node(); }
const UOp* Shrink(Graph& g, const UOp* x, ShapeView begin_end) {
  return Expr(g, x).shrink(begin_end).node();
}
const UOp* Reduce(Graph& g, Op op, const UOp* x, std::vector<int64_t> axes) {
  return Expr(g, x).reduce(op, std::move(axes)).node();
}

const UOp* Sink(Graph& g, Sources results) {
  return g.MakeChecked(Op::kSink, DType::kVoid, results);
}

}  // namespace outboard
