#include "compiler/ir/expr.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "compiler/ir/build.h"

namespace outboard {

Literal Literal::operator-() const {
  Literal negated = *this;
  negated.real_ = -real_;
  negated.whole_ = static_cast<int64_t>(-static_cast<uint64_t>(whole_));
  return negated;
}

int64_t Literal::BitsAs(DType dtype) const {
  if (IsFloat(dtype)) return std::bit_cast<int64_t>(RoundTo(dtype, real_));
  if (is_whole_) return WrapTo(dtype, whole_);
  OB_CHECK(real_ == std::trunc(real_) && std::abs(real_) < 0x1p63);
  return WrapTo(dtype, static_cast<int64_t>(real_));
}

Expr Expr::Make(Op op, DType dtype, Sources src, absl::Span<const int64_t> arg) const {
  return of(maker_ != nullptr ? maker_->Make(op, dtype, src, arg)
                              : graph_->MakeChecked(op, dtype, src, arg));
}

Expr Expr::of(const UOp* node) const {
  Expr other = *this;
  other.node_ = node;
  return other;
}

Expr Expr::like(Literal value) const {
  return Make(Op::kConst, dtype(), {}, {value.BitsAs(dtype())}).full(shape());
}

Expr Expr::full(ShapeView shape) const {
  if (shape.empty()) return *this;
  return reshape(Shape(shape.size(), Dim(1))).expand(shape);
}

Expr Expr::Unary(Op op) const { return Make(op, dtype(), {node_}); }

Expr Expr::Binary(Op op, const Expr& other) const {
  return Make(op, IsCompare(op) ? DType::kBool : dtype(), {node_, other.node_});
}

Expr Expr::where(const Expr& yes, const Expr& no) const {
  return Make(Op::kWhere, yes.dtype(), {node_, yes.node_, no.node_});
}

Expr fma(const Expr& a, const Expr& b, const Expr& c) {
  return a.Make(Op::kMulAcc, a.dtype(), {a.node_, b.node_, c.node_});
}

Expr Expr::cast(DType dtype) const {
  return node_->dtype == dtype ? *this : Make(Op::kCast, dtype, {node_});
}

Expr Expr::bitcast(DType dtype) const {
  return node_->dtype == dtype ? *this : Make(Op::kBitcast, dtype, {node_});
}

Expr Expr::WithDims(Op op, ShapeView dims) const {
  std::vector<const UOp*> src = {node_};
  std::vector<int64_t> arg;
  AppendDims(dims, arg, src);
  return Make(op, dtype(), src, arg);
}

Expr Expr::reshape(ShapeView dims) const {
  return shape() == dims ? *this : WithDims(Op::kReshape, dims);
}

Expr Expr::expand(ShapeView dims) const {
  return shape() == dims ? *this : WithDims(Op::kExpand, dims);
}

Expr Expr::permute(absl::Span<const int64_t> axes) const {
  bool same = axes.size() == shape().size();
  for (size_t i = 0; i < axes.size(); ++i) same = same && axes[i] == static_cast<int64_t>(i);
  return same ? *this : Make(Op::kPermute, dtype(), {node_}, axes);
}

Expr Expr::flip(absl::Span<const int64_t> axes) const {
  return axes.empty() ? *this : Make(Op::kFlip, dtype(), {node_}, axes);
}

Expr Expr::pad(ShapeView lo_hi) const {
  const bool nothing =
      std::all_of(lo_hi.begin(), lo_hi.end(), [](const Dim& dim) { return dim == Dim(0); });
  return nothing ? *this : WithDims(Op::kPad, lo_hi);
}

Expr Expr::shrink(ShapeView begin_end) const {
  OB_CHECK(begin_end.size() == 2 * shape().size());
  bool whole = true;
  for (int i = 0; i < rank(); ++i)
    whole = whole && begin_end[2 * i] == Dim(0) && begin_end[2 * i + 1] == shape()[i];
  return whole ? *this : WithDims(Op::kShrink, begin_end);
}

Expr Expr::reduce(Op op, std::vector<int64_t> axes) const {
  if (axes.empty()) return *this;
  std::sort(axes.begin(), axes.end());
  axes.insert(axes.begin(), static_cast<int64_t>(op));
  return Make(Op::kReduce, dtype(), {node_}, axes);
}

}  // namespace outboard
