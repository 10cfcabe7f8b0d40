// Nodes with operators, so that code which builds graphs reads like mathematics:
//
//   const Expr x(graph, node);
//   const Expr y = (x < 0).where(0, x * (1 - x * x).sqrt());
//
// A number used as an operand becomes a literal of the node's type (rounded, or wrapped) broadcast
// to its shape. Operands of one operation must have the same type and shape: there is no implicit
// broadcast or cast otherwise. Each operator makes the one node that it names (docs/semantics.md),
// with two exceptions: a - b is a + -b, and a > b is b < a. == and != make nodes, too; to test
// whether two expressions are the same, compare their node()s.
//
// Errors: none. A broken rule is a bug and ends the process, as in build.h; with a NodeMaker, the
// NodeMaker decides. Ownership: an Expr is a pointer to a node and is copied freely; the graph, and
// the NodeMaker, must outlive it. Threads: those of the graph.
#pragma once

#include <concepts>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "compiler/ir/op.h"
#include "compiler/ir/uop.h"

namespace outboard {

// Makes the nodes of expressions instead of Graph::MakeChecked, for callers whose input can break a
// rule, or that must see each node.
class NodeMaker {
 public:
  virtual ~NodeMaker() = default;
  // Like Graph::Make, but does not return if the node cannot be made.
  virtual const UOp* Make(Op op, DType dtype, Sources src, absl::Span<const int64_t> arg) = 0;
};

// A number written in source code: represents every double, and every int64_t exactly.
class Literal {
 public:
  Literal(std::integral auto value)  // NOLINT: a number is a literal
      : real_(static_cast<double>(value)), whole_(static_cast<int64_t>(value)) {}
  Literal(std::floating_point auto value)  // NOLINT
      : real_(value), is_whole_(false) {}
  Literal operator-() const;

  // Returns the bits of the CONST of `dtype`. A float type rounds. An integer type wraps, and the
  // number must be whole.
  int64_t BitsAs(DType dtype) const;

 private:
  double real_;
  int64_t whole_ = 0;
  bool is_whole_ = true;  // whole_ is the number
};

// A node, together with the Graph or NodeMaker that makes nodes computed from it.
class Expr {
 public:
  Expr(Graph& graph, const UOp* node) : graph_(&graph), node_(node) {}
  Expr(NodeMaker& maker, const UOp* node) : maker_(&maker), node_(node) {}

  const UOp* node() const { return node_; }
  DType dtype() const { return node_->dtype; }
  ShapeView shape() const { return node_->shape; }
  int rank() const { return node_->rank(); }

  // Wraps another node with the same maker.
  Expr of(const UOp* node) const;
  // A literal with the type and shape of this node.
  Expr like(Literal value) const;
  // This scalar, broadcast to `shape`.
  Expr full(ShapeView shape) const;

  Expr exp() const { return Unary(Op::kExp); }
  Expr exp2() const { return Unary(Op::kExp2); }
  Expr log() const { return Unary(Op::kLog); }
  Expr log2() const { return Unary(Op::kLog2); }
  Expr sin() const { return Unary(Op::kSin); }
  Expr cos() const { return Unary(Op::kCos); }
  Expr tanh() const { return Unary(Op::kTanh); }
  Expr sqrt() const { return Unary(Op::kSqrt); }
  Expr trunc() const { return Unary(Op::kTrunc); }  // towards zero

  // The larger of the two, element by element.
  Expr max(const Expr& other) const { return Binary(Op::kMax, other); }
  Expr max(Literal other) const { return max(like(other)); }

  // This node, a bool, selects: `yes` where it is true, `no` elsewhere.
  Expr where(const Expr& yes, const Expr& no) const;
  Expr where(Literal yes, const Expr& no) const { return where(no.like(yes), no); }
  Expr where(const Expr& yes, Literal no) const { return where(yes, yes.like(no)); }

  // Returns this expression itself if it already has the type.
  Expr cast(DType dtype) const;
  Expr bitcast(DType dtype) const;

  // Return this expression itself if nothing changes. Lists of pairs are laid out as for PAD and
  // SHRINK (op.h).
  Expr reshape(ShapeView dims) const;
  Expr expand(ShapeView dims) const;
  Expr permute(absl::Span<const int64_t> axes) const;
  Expr flip(absl::Span<const int64_t> axes) const;
  Expr pad(ShapeView lo_hi) const;
  Expr shrink(ShapeView begin_end) const;

  // Reductions. `axes` in any order; reduced axes remain, with length 1. Over no axes, returns this
  // expression itself.
  Expr reduce(Op op, std::vector<int64_t> axes) const;
  Expr sum(std::vector<int64_t> axes) const { return reduce(Op::kAdd, std::move(axes)); }
  Expr product(std::vector<int64_t> axes) const { return reduce(Op::kMul, std::move(axes)); }
  Expr largest(std::vector<int64_t> axes) const { return reduce(Op::kMax, std::move(axes)); }

  // Any operation of one or two sources, by name.
  Expr Unary(Op op) const;
  Expr Binary(Op op, const Expr& other) const;

  // a * b + c of f32 or f64, rounded once; in kernels only.
  friend Expr fma(const Expr& a, const Expr& b, const Expr& c);

 private:
  Expr Make(Op op, DType dtype, Sources src, absl::Span<const int64_t> arg = {}) const;
  Expr WithDims(Op op, ShapeView dims) const;

  Graph* graph_ = nullptr;  // one of the two
  NodeMaker* maker_ = nullptr;
  const UOp* node_;
};

inline Expr operator-(const Expr& a) { return a.Unary(Op::kNeg); }
inline Expr operator+(const Expr& a, const Expr& b) { return a.Binary(Op::kAdd, b); }
inline Expr operator-(const Expr& a, const Expr& b) { return a + -b; }
inline Expr operator*(const Expr& a, const Expr& b) { return a.Binary(Op::kMul, b); }
// Of integers towards zero.
inline Expr operator/(const Expr& a, const Expr& b) {
  return a.Binary(IsFloat(a.dtype()) ? Op::kFDiv : Op::kIDiv, b);
}
// Of integers, with the sign of a.
inline Expr operator%(const Expr& a, const Expr& b) { return a.Binary(Op::kMod, b); }
inline Expr operator&(const Expr& a, const Expr& b) { return a.Binary(Op::kAnd, b); }
inline Expr operator|(const Expr& a, const Expr& b) { return a.Binary(Op::kOr, b); }
inline Expr operator^(const Expr& a, const Expr& b) { return a.Binary(Op::kXor, b); }
inline Expr operator<<(const Expr& a, const Expr& b) { return a.Binary(Op::kShl, b); }
inline Expr operator>>(const Expr& a, const Expr& b) { return a.Binary(Op::kShr, b); }
inline Expr operator<(const Expr& a, const Expr& b) { return a.Binary(Op::kCmpLt, b); }
inline Expr operator>(const Expr& a, const Expr& b) { return b < a; }
inline Expr operator==(const Expr& a, const Expr& b) { return a.Binary(Op::kCmpEq, b); }
inline Expr operator!=(const Expr& a, const Expr& b) { return a.Binary(Op::kCmpNe, b); }

inline Expr operator+(const Expr& a, Literal b) { return a + a.like(b); }
inline Expr operator+(Literal a, const Expr& b) { return b.like(a) + b; }
inline Expr operator-(const Expr& a, Literal b) { return a + a.like(-b); }
inline Expr operator-(Literal a, const Expr& b) { return b.like(a) - b; }
inline Expr operator*(const Expr& a, Literal b) { return a * a.like(b); }
inline Expr operator*(Literal a, const Expr& b) { return b.like(a) * b; }
inline Expr operator/(const Expr& a, Literal b) { return a / a.like(b); }
inline Expr operator/(Literal a, const Expr& b) { return b.like(a) / b; }
inline Expr operator%(const Expr& a, Literal b) { return a % a.like(b); }
inline Expr operator&(const Expr& a, Literal b) { return a & a.like(b); }
inline Expr operator|(const Expr& a, Literal b) { return a | a.like(b); }
inline Expr operator^(const Expr& a, Literal b) { return a ^ a.like(b); }
inline Expr operator<<(const Expr& a, Literal b) { return a << a.like(b); }
inline Expr operator>>(const Expr& a, Literal b) { return a >> a.like(b); }
inline Expr operator<(const Expr& a, Literal b) { return a < a.like(b); }
inline Expr operator<(Literal a, const Expr& b) { return b.like(a) < b; }
inline Expr operator>(const Expr& a, Literal b) { return b < a; }
inline Expr operator>(Literal a, const Expr& b) { return b < a; }
inline Expr operator==(const Expr& a, Literal b) { return a == a.like(b); }
inline Expr operator!=(const Expr& a, Literal b) { return a != a.like(b); }

Expr fma(const Expr& a, const Expr& b, const Expr& c);
inline Expr fma(const Expr& a, Literal b, const Expr& c) { return fma(a, a.like(b), c); }
inline Expr fma(const Expr& a, const Expr& b, Literal c) { return fma(a, b, a.like(c)); }
inline Expr fma(const Expr& a, Literal b, Literal c) { return fma(a, a.like(b), a.like(c)); }

}  // namespace outboard
