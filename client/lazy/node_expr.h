// A node with operators, so that the body of an operator is its formula:
//
//   NodeExpr Relu(const NodeExpr& x) { return Max(x, 0); }
//   NodeExpr hardswish = x * (Relu(x + 3) - Relu(x - 3)) * (1.0 / 6);
//
// Nodes are recorded exactly as written, from left to right: `1 + x` is an ADD whose first source
// is the 1, a - b is a + (-b), a > b is b < a. A number is broadcast to the shape of the other
// operand, in its dtype. Operands must have the same dtype and shape; Tensor
// (client/tensor/tensor.h) promotes and broadcasts.
//
// Refers to its NodeBuilder, which it must not outlive. Errors are thrown as by NodeBuilder, at the
// user's line. Threads: as NodeBuilder.
#pragma once

#include <vector>

#include "client/lazy/node_builder.h"
#include "client/tensor/tensor.h"

namespace outboard::internal {

class NodeExpr {
 public:
  NodeExpr(const NodeBuilder& build, const UOp* node) : rec_(&build), node_(node) {}
  NodeExpr& operator=(const NodeExpr& other) {  // of the same NodeBuilder
    node_ = other.node_;
    return *this;
  }
  NodeExpr(const NodeExpr&) = default;

  operator const UOp*() const { return node_; }  // NOLINT
  explicit operator bool() const = delete;       // `if (a < b)`: only the cloud knows the value
  const UOp* operator->() const { return node_; }
  const UOp* node() const { return node_; }
  const NodeBuilder& rec() const { return *rec_; }
  // Throws if it is symbolic.
  int64_t Length(int64_t axis) const { return rec_->LengthOf(node_, axis); }
  NodeExpr With(const UOp* node) const { return {*rec_, node}; }

  // A number with this one's shape and dtype.
  NodeExpr Full(double value) const { return With(rec_->FullLike(node_, value)); }
  NodeExpr FullInt(int64_t value) const {  // exact for 64 bits; wider values give their low bits
    return With(rec_->Full(rec_->ConstInt(node_->dtype, value), node_->shape));
  }

  NodeExpr Cast(DType dtype) const { return With(rec_->Cast(node_, dtype)); }
  NodeExpr Reshape(ShapeView shape) const { return With(rec_->Reshape(node_, shape)); }
  NodeExpr Expand(ShapeView shape) const { return With(rec_->Expand(node_, shape)); }
  NodeExpr Permute(absl::Span<const int64_t> axes) const {
    return With(rec_->Permute(node_, axes));
  }
  NodeExpr Broadcast(ShapeView shape) const { return With(rec_->Broadcast(node_, shape)); }
  NodeExpr Flip(absl::Span<const int64_t> axes) const {
    return With(rec_->Make(Op::kFlip, node_->dtype, {node_}, axes));
  }
  NodeExpr Pad(ShapeView lo_hi) const { return With(rec_->Pad(node_, lo_hi)); }
  NodeExpr Shrink(ShapeView begin_end) const { return With(rec_->Shrink(node_, begin_end)); }
  // The same along one axis.
  NodeExpr Pad(int64_t axis, const Dim& before, const Dim& after) const {
    Shape lo_hi(2 * node_->shape.size(), Dim(0));
    lo_hi[2 * axis] = before;
    lo_hi[2 * axis + 1] = after;
    return Pad(lo_hi);
  }
  NodeExpr Shrink(int64_t axis, const Dim& begin, const Dim& end) const {
    Shape begin_end;
    for (const Dim& dim : node_->shape) begin_end.insert(begin_end.end(), {Dim(0), dim});
    begin_end[2 * axis] = begin;
    begin_end[2 * axis + 1] = end;
    return Shrink(begin_end);
  }
  NodeExpr Squeeze(const std::vector<int64_t>& axes) const {
    return With(rec_->Squeeze(node_, axes));
  }
  // Reduces `axes`, which remain with length 1.
  NodeExpr Sum(const std::vector<int64_t>& axes) const {
    return With(rec_->Reduce(Op::kAdd, node_, axes));
  }
  NodeExpr Max(const std::vector<int64_t>& axes) const {
    return With(rec_->Reduce(Op::kMax, node_, axes));
  }
  // Materialises the value.
  NodeExpr Contiguous() const { return Unary(Op::kContiguous); }
  // The same value; stops gradients.
  NodeExpr Detach() const { return Unary(Op::kDetach); }

  NodeExpr Unary(Op op) const { return With(rec_->Alu(op, node_)); }
  NodeExpr Binary(Op op, const NodeExpr& b) const { return With(rec_->Alu(op, node_, b.node_)); }

 private:
  const NodeBuilder* rec_;
  const UOp* node_;
};

inline NodeExpr operator-(const NodeExpr& x) { return x.Unary(Op::kNeg); }
inline NodeExpr operator!(const NodeExpr& c) { return c.With(c.rec().Not(c)); }  // of bool

inline NodeExpr operator+(const NodeExpr& a, const NodeExpr& b) { return a.Binary(Op::kAdd, b); }
inline NodeExpr operator-(const NodeExpr& a, const NodeExpr& b) { return a + -b; }
inline NodeExpr operator*(const NodeExpr& a, const NodeExpr& b) { return a.Binary(Op::kMul, b); }
inline NodeExpr operator/(const NodeExpr& a, const NodeExpr& b) {  // of floats
  return a.Binary(Op::kFDiv, b);
}
inline NodeExpr operator%(const NodeExpr& a, const NodeExpr& b) { return a.Binary(Op::kMod, b); }
inline NodeExpr operator&(const NodeExpr& a, const NodeExpr& b) { return a.Binary(Op::kAnd, b); }
inline NodeExpr operator|(const NodeExpr& a, const NodeExpr& b) { return a.Binary(Op::kOr, b); }
inline NodeExpr operator^(const NodeExpr& a, const NodeExpr& b) { return a.Binary(Op::kXor, b); }
inline NodeExpr operator<<(const NodeExpr& a, const NodeExpr& b) { return a.Binary(Op::kShl, b); }
inline NodeExpr operator>>(const NodeExpr& a, const NodeExpr& b) { return a.Binary(Op::kShr, b); }
inline NodeExpr operator<(const NodeExpr& a, const NodeExpr& b) { return a.Binary(Op::kCmpLt, b); }
inline NodeExpr operator>(const NodeExpr& a, const NodeExpr& b) { return b < a; }
// Comparing two nodes makes a node. (To compare their identity: a.node() == b.node().)
inline NodeExpr operator==(const NodeExpr& a, const NodeExpr& b) { return a.Binary(Op::kCmpEq, b); }
inline NodeExpr operator!=(const NodeExpr& a, const NodeExpr& b) { return a.Binary(Op::kCmpNe, b); }

inline NodeExpr operator+(const NodeExpr& a, double b) { return a + a.Full(b); }
inline NodeExpr operator-(const NodeExpr& a, double b) { return a + a.Full(-b); }
inline NodeExpr operator*(const NodeExpr& a, double b) { return a * a.Full(b); }
inline NodeExpr operator/(const NodeExpr& a, double b) { return a / a.Full(b); }
inline NodeExpr operator%(const NodeExpr& a, double b) { return a % a.Full(b); }
inline NodeExpr operator<(const NodeExpr& a, double b) { return a < a.Full(b); }
inline NodeExpr operator>(const NodeExpr& a, double b) { return a > a.Full(b); }
inline NodeExpr operator==(const NodeExpr& a, double b) { return a == a.Full(b); }
inline NodeExpr operator!=(const NodeExpr& a, double b) { return a != a.Full(b); }
inline NodeExpr operator>>(const NodeExpr& a, int b) { return b == 0 ? a : a >> a.Full(b); }
inline NodeExpr operator+(double a, const NodeExpr& b) { return b.Full(a) + b; }
inline NodeExpr operator-(double a, const NodeExpr& b) { return b.Full(a) - b; }
inline NodeExpr operator/(double a, const NodeExpr& b) { return b.Full(a) / b; }

inline NodeExpr Where(const NodeExpr& c, const NodeExpr& a, const NodeExpr& b) {
  return a.With(a.rec().Where(c, a, b));
}
inline NodeExpr Where(const NodeExpr& c, double a, const NodeExpr& b) {
  return Where(c, b.Full(a), b);
}
inline NodeExpr Where(const NodeExpr& c, const NodeExpr& a, double b) {
  return Where(c, a, a.Full(b));
}

inline NodeExpr Max(const NodeExpr& a, const NodeExpr& b) { return a.Binary(Op::kMax, b); }
inline NodeExpr Max(const NodeExpr& a, double b) { return Max(a, a.Full(b)); }
// |x| of a type with signs.
inline NodeExpr Abs(const NodeExpr& x) { return Max(x, -x); }
inline NodeExpr IDiv(const NodeExpr& a, const NodeExpr& b) { return a.Binary(Op::kIDiv, b); }
inline NodeExpr IDiv(const NodeExpr& a, double b) { return IDiv(a, a.Full(b)); }
inline NodeExpr Bitcast(const NodeExpr& x, DType dtype) {  // to a dtype of the same width
  return x.With(x.rec().Make(Op::kBitcast, dtype, {x}));
}
inline NodeExpr IsNan(const NodeExpr& x) { return x != x; }

inline NodeExpr Exp(const NodeExpr& x) { return x.Unary(Op::kExp); }
inline NodeExpr Exp2(const NodeExpr& x) { return x.Unary(Op::kExp2); }
inline NodeExpr Log(const NodeExpr& x) { return x.Unary(Op::kLog); }
inline NodeExpr Log2(const NodeExpr& x) { return x.Unary(Op::kLog2); }
inline NodeExpr Sin(const NodeExpr& x) { return x.Unary(Op::kSin); }
inline NodeExpr Cos(const NodeExpr& x) { return x.Unary(Op::kCos); }
inline NodeExpr Sqrt(const NodeExpr& x) { return x.Unary(Op::kSqrt); }
inline NodeExpr Tanh(const NodeExpr& x) { return x.Unary(Op::kTanh); }
inline NodeExpr Trunc(const NodeExpr& x) { return x.Unary(Op::kTrunc); }

// x with those of `axes` whose length is of a variable padded with zeros to its largest value.
inline NodeExpr PaddedToMost(const NodeExpr& x, const std::vector<int64_t>& axes) {
  Shape lo_hi(2 * x->shape.size(), Dim(0));
  for (const int64_t axis : axes) lo_hi[2 * axis + 1] = x.rec().UpToMost(x->shape[axis]);
  return x.Pad(lo_hi);
}

// 0, 1 ... along `axis` of `shape`.
inline NodeExpr Iota(const NodeBuilder& build, DType dtype, ShapeView shape, int axis) {
  return {build, build.IotaAlong(dtype, shape, axis)};
}

// True everywhere.
inline NodeExpr True(const NodeBuilder& build, ShapeView shape) {
  return {build, build.Full(build.ConstInt(DType::kBool, 1), shape)};
}

// Converts a tensor to its node, and a node to a tensor.
inline NodeExpr ExprOf(const NodeBuilder& build, const Tensor& x) {
  return {build, x.NodeIn(build)};
}
inline Tensor TensorOf(const NodeExpr& x) { return Tensor::FromNode(x.rec(), x); }

}  // namespace outboard::internal
