// Makes nodes for the user's operations: as compiler/ir/build.h, but a violated rule throws an
// Error at the user's line, with INVALID_ARGUMENT unless a comment names another code.
//
// dtypes are passed to Graph::Make wherever they are known, so that an existing node costs one
// look-up.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "client/lazy/call_site.h"
#include "client/lazy/lazy_graph.h"
#include "client/tensor/error.h"
#include "client/tensor/variable.h"
#include "compiler/ir/uop.h"

namespace outboard::internal {

std::string DimsToString(ShapeView shape);  // "[2, 3]"
Shape ToShape(const std::vector<int64_t>& dims);

class NodeBuilder {
 public:
  // Opens the user's line, unless one is open (client/lazy/call_site.h); without `at` one must be
  // open.
  explicit NodeBuilder(const At& at = CallSite::Line());

  const At& at() const { return at_; }
  const std::shared_ptr<LazyGraph>& lazy_graph() const { return lazy_graph_; }
  Graph& graph() const { return lazy_graph_->graph(); }

  const UOp* Make(Op op, DType dtype, Sources src, absl::Span<const int64_t> arg = {}) const;

  // Scalars. Integer types reject a float value that is out of range or not whole.
  const UOp* Const(DType dtype, double value) const;
  const UOp* ConstInt(DType dtype, int64_t value) const;  // uses the low bits, for kU64
  // A number broadcast to the shape of `like`, in its dtype.
  const UOp* FullLike(const UOp* like, double value) const;
  const UOp* Full(const UOp* scalar, ShapeView shape) const;
  // 0, 1 ... along `axis` of `shape`.
  const UOp* IotaAlong(DType dtype, ShapeView shape, int axis) const;

  const UOp* Alu(Op op, const UOp* a) const { return Make(op, a->dtype, {a}); }
  const UOp* Alu(Op op, const UOp* a, const UOp* b) const {
    return Make(op, IsCompare(op) ? DType::kBool : a->dtype, {a, b});
  }
  const UOp* Add(const UOp* a, const UOp* b) const { return Alu(Op::kAdd, a, b); }
  const UOp* Sub(const UOp* a, const UOp* b) const { return Add(a, Alu(Op::kNeg, b)); }
  const UOp* Mul(const UOp* a, const UOp* b) const { return Alu(Op::kMul, a, b); }
  const UOp* Scale(const UOp* a, double factor) const { return Mul(a, FullLike(a, factor)); }
  const UOp* Where(const UOp* c, const UOp* a, const UOp* b) const {
    return Make(Op::kWhere, a->dtype, {c, a, b});
  }
  const UOp* Not(const UOp* c) const;  // of bool
  const UOp* Cast(const UOp* x, DType dtype) const;

  const UOp* Reshape(const UOp* x, ShapeView dims) const;
  const UOp* Expand(const UOp* x, ShapeView dims) const;
  // Prepends dimensions of length 1 to x, then expands it. Throws if the shapes do not broadcast.
  const UOp* Broadcast(const UOp* x, ShapeView dims) const;
  const UOp* Permute(const UOp* x, absl::Span<const int64_t> axes) const;
  const UOp* Pad(const UOp* x, ShapeView lo_hi) const;
  const UOp* Shrink(const UOp* x, ShapeView begin_end) const;
  // The reduced axes remain, with length 1.
  const UOp* Reduce(Op op, const UOp* x, std::vector<int64_t> axes) const;
  // Drops the axes, which must have length 1.
  const UOp* Squeeze(const UOp* x, const std::vector<int64_t>& axes) const;

  // A symbolic size becomes an expression of its VAR, and later nodes depend on the variable's
  // value. Throws if the variable has another value already.
  Dim DimOf(const SymInt& size) const;
  Shape ShapeOf(const SymShape& sizes) const;
  void Bind(const std::vector<BoundVariable>& bound) const;
  const std::vector<BoundVariable>& bound() const { return bound_; }
  // The inverse, for a dimension of `lazy_graph` and the bound values.
  SymInt SizeOf(const Dim& dim, const LazyGraph& lazy_graph) const;
  // A dimension as a scalar of i64.
  const UOp* ScalarOf(const Dim& dim) const;
  // a + b; throws if it does not fit.
  Dim Sum(const Dim& a, const Dim& b) const;
  // Their product, as a number or an expression; throws if it does not fit.
  Dim Product(const Shape& dims) const;
  // What a dimension lacks to its largest value.
  Dim UpToMost(const Dim& dim) const;
  // For operations that need a number: throws if the size is symbolic.
  int64_t LengthOf(const UOp* x, int64_t axis) const;
  int64_t CountOf(ShapeView shape) const;

  // Normalises an axis of `rank`; -1 is the last one. Throws if it is out of range.
  int Axis(int64_t axis, int rank) const;
  // Returns all axes if `axes` is empty; sorted. Throws for one that is out of range or given
  // twice. For a scalar, 0 and -1 give no axis.
  std::vector<int64_t> Axes(const std::vector<int64_t>& axes, int rank) const;
  // Returns the shape that a and b broadcast to. Throws if there is none.
  Shape BroadcastShape(ShapeView a, ShapeView b, const char* what) const;

  [[noreturn]] void Invalid(const std::string& message,
                            Mistake mistake = Mistake::kArgument) const {
    ThrowInvalid(at_, message, mistake);
  }

 private:
  const CallSite site_;
  std::shared_ptr<LazyGraph> lazy_graph_;
  const At at_;
  mutable std::vector<BoundVariable> bound_;  // that the operands depend on
};

}  // namespace outboard::internal
