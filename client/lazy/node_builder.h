// Making nodes for the user: as compiler/ir/build.h, but a rule that is broken is thrown as an
// Error at the user's line.
//
// dtypes are passed to Graph::Make wherever they are known, so that a node that exists already is
// one look-up.
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
  // Opens the user's line, unless one is open (client/lazy/call_site.h); without `at` one is.
  explicit NodeBuilder(const At& at = CallSite::Line());

  const At& at() const { return at_; }
  const std::shared_ptr<LazyGraph>& recording() const { return recording_; }
  Graph& graph() const { return recording_->graph(); }

  const UOp* Make(Op op, DType dtype, Sources src, absl::Span<const int64_t> arg = {}) const;

  // Scalars. A float value that is out of range or not whole is refused for integer types.
  const UOp* Const(DType dtype, double value) const;
  const UOp* ConstInt(DType dtype, int64_t value) const;  // the low bits, for kU64
  // A number spread over the shape of `like`, in its type.
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
  // x with dimensions of length 1 put in front, then expanded. Throws where the shapes do not
  // broadcast.
  const UOp* Broadcast(const UOp* x, ShapeView dims) const;
  const UOp* Permute(const UOp* x, absl::Span<const int64_t> axes) const;
  const UOp* Pad(const UOp* x, ShapeView lo_hi) const;
  const UOp* Shrink(const UOp* x, ShapeView begin_end) const;
  // The reduced axes stay, of length 1.
  const UOp* Reduce(Op op, const UOp* x, std::vector<int64_t> axes) const;
  // x without the axes, which have length 1.
  const UOp* Squeeze(const UOp* x, const std::vector<int64_t>& axes) const;

  // A size of a variable is an expression of its VAR, and what is made from here on depends on the
  // value that the variable has. Throws where it has another one already.
  Dim DimOf(const SymInt& size) const;
  Shape ShapeOf(const SymShape& sizes) const;
  void Bind(const std::vector<BoundVariable>& bound) const;
  const std::vector<BoundVariable>& bound() const { return bound_; }
  // The other way, for a dimension of `recording` and the values that are bound.
  SymInt SizeOf(const Dim& dim, const LazyGraph& recording) const;
  // Where only numbers will do. Throws.
  int64_t LengthOf(const UOp* x, int64_t axis) const;
  int64_t CountOf(ShapeView shape) const;

  // An axis of `rank`, where -1 is the last one. Throws.
  int Axis(int64_t axis, int rank) const;
  // All axes where `axes` is empty; sorted. Throws for one that is out of range or given twice. Of
  // a scalar 0 and -1 are none.
  std::vector<int64_t> Axes(const std::vector<int64_t>& axes, int rank) const;
  // The shape that a and b broadcast to. Throws.
  Shape BroadcastShape(ShapeView a, ShapeView b, const char* what) const;

  [[noreturn]] void Invalid(const std::string& message) const { ThrowInvalid(at_, message); }

 private:
  const CallSite site_;
  std::shared_ptr<LazyGraph> recording_;
  const At at_;
  mutable std::vector<BoundVariable> bound_;  // that the operands depend on
};

}  // namespace outboard::internal
