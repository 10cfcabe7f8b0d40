#include "compiler/ir/build.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace outboard {
namespace {

const UOp* WithDims(Graph& g, Op op, DType dtype, std::vector<const UOp*> src,
                    std::vector<int64_t> arg, ShapeView dims) {
  AppendDims(dims, arg, src);
  return g.MakeChecked(op, dtype, src, arg);
}

bool AllZero(ShapeView dims) {
  return std::all_of(dims.begin(), dims.end(), [](const Dim& dim) { return dim == Dim(0); });
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
  if (shape.empty()) return scalar;
  const Shape ones(shape.size(), Dim(1));
  return Expand(g, Reshape(g, scalar, ones), shape);
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

const UOp* Reshape(Graph& g, const UOp* x, ShapeView dims) {
  return x->shape == dims ? x : WithDims(g, Op::kReshape, DType::kVoid, {x}, {}, dims);
}

const UOp* Expand(Graph& g, const UOp* x, ShapeView dims) {
  return x->shape == dims ? x : WithDims(g, Op::kExpand, DType::kVoid, {x}, {}, dims);
}

const UOp* Permute(Graph& g, const UOp* x, absl::Span<const int64_t> axes) {
  bool same = axes.size() == x->shape.size();
  for (size_t i = 0; i < axes.size(); ++i) same = same && axes[i] == static_cast<int64_t>(i);
  if (same) return x;
  return g.MakeChecked(Op::kPermute, DType::kVoid, {x}, axes);
}

const UOp* Flip(Graph& g, const UOp* x, absl::Span<const int64_t> axes) {
  return axes.empty() ? x : g.MakeChecked(Op::kFlip, DType::kVoid, {x}, axes);
}

const UOp* Pad(Graph& g, const UOp* x, ShapeView lo_hi) {
  return AllZero(lo_hi) ? x : WithDims(g, Op::kPad, DType::kVoid, {x}, {}, lo_hi);
}

const UOp* Shrink(Graph& g, const UOp* x, ShapeView begin_end) {
  OB_CHECK(begin_end.size() == 2 * x->shape.size());
  bool whole = true;
  for (int i = 0; i < x->rank(); ++i)
    whole = whole && begin_end[2 * i] == Dim(0) && begin_end[2 * i + 1] == x->shape[i];
  return whole ? x : WithDims(g, Op::kShrink, DType::kVoid, {x}, {}, begin_end);
}

const UOp* Reduce(Graph& g, Op op, const UOp* x, std::vector<int64_t> axes) {
  if (axes.empty()) return x;
  std::sort(axes.begin(), axes.end());
  axes.insert(axes.begin(), static_cast<int64_t>(op));
  return g.MakeChecked(Op::kReduce, DType::kVoid, {x}, axes);
}

const UOp* Sink(Graph& g, Sources results) {
  return g.MakeChecked(Op::kSink, DType::kVoid, results);
}

}  // namespace outboard
