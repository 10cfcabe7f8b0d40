// The graph: immutable, interned nodes in an arena.
//
// A UOp is an op, a dtype, sources and a list of integers (`arg`, laid out as op.h says). A Graph
// owns its nodes and interns them: two nodes of one Graph that are equal are the same pointer.
// Every node is made by Graph::Make, which checks the node's own rules (spec.h) and infers its
// dtype and shape, so every node that exists is well-typed.
//
// Dimensions. A dimension is a Dim: an integer, or an i64 scalar expression over VARs. In `arg` a
// symbolic dimension is stored as kSymbolicDim, and its expression is the next of the sources after
// the operation's own; a rewrite that rebuilds sources therefore rewrites dimensions too.
// UOp::arg_dim reads dimensions.
//
// Threads: a Graph and its nodes belong to one thread at a time; finished nodes may be read by
// several.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/dtype.h"
#include "compiler/ir/op.h"

namespace outboard {

struct UOp;

inline constexpr int64_t kSymbolicDim = std::numeric_limits<int64_t>::min();

// One dimension of a shape: a number, or an expression with bounds. Expressions are interned, so
// two Dims of one Graph are equal if they are the same expression; equal values may be written
// differently.
class Dim {
 public:
  Dim() = default;
  Dim(std::integral auto value) : value_(value) {}  // NOLINT: a number is a dimension
  explicit Dim(const UOp* expression);              // i64 scalar; a CONST becomes its number

  bool is_const() const { return expression_ == nullptr; }
  int64_t value() const { return value_; }               // kSymbolicDim where !is_const()
  const UOp* expression() const { return expression_; }  // nullptr where is_const()
  int64_t min() const;
  int64_t max() const;

  friend bool operator==(const Dim&, const Dim&) = default;

 private:
  int64_t value_ = 0;
  const UOp* expression_ = nullptr;
};

using Shape = std::vector<Dim>;
using ShapeView = absl::Span<const Dim>;
using Sources = absl::Span<const UOp* const>;

struct UOp {
  Op op;
  DType dtype;
  uint32_t index;  // in the order of creation: sources have smaller ones
  uint32_t hash;   // differs from run to run
  Sources src;
  absl::Span<const int64_t> arg;
  ShapeView shape;  // empty for scalars, for kernel-level nodes and for nodes of kVoid
  // Sound bounds of every element, for integer types and bool; the limits of the type if nothing
  // tighter is known. For u64 they bound the bits (bounds.h).
  int64_t vmin;
  int64_t vmax;
  bool of_vars;  // a scalar of integers or bool, of numbers and VARs only: known before a run, so
                 // it may be a dimension

  int rank() const { return static_cast<int>(shape.size()); }
  bool is_const() const { return op == Op::kConst; }
  // CONST of an integer type or bool.
  int64_t int_value() const { return arg[0]; }
  // CONST of a float type.
  double float_value() const;
  bool IsIntConst(int64_t value) const { return is_const() && !IsFloat(dtype) && arg[0] == value; }
  // The number of leading `src` that are operands; the expressions of symbolic dimensions follow.
  int own_sources() const;
  // The dimension at arg[i]. O(arg) if it is symbolic.
  Dim arg_dim(int i) const;
};

// Elements of a shape of numbers. Requires every Dim to be a number.
int64_t ElementCount(ShapeView shape);
bool IsStatic(ShapeView shape);
// The dims of a shape of numbers. Requires every Dim to be a number.
std::vector<int64_t> StaticDims(ShapeView shape);

class Graph {
 public:
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Returns the interned node. `dtype` is required where it cannot be inferred (PARAM, BUFFER,
  // CONST, IOTA, CAST, BITCAST, GLOBAL); elsewhere it is kVoid for "infer", or must equal the
  // inferred type.
  // Errors: INVALID_ARGUMENT     a rule of the node is broken; the message names op, rule and
  // values
  //         RESOURCE_EXHAUSTED   a limit of limits.h; the message names it
  absl::StatusOr<const UOp*> Make(Op op, DType dtype, Sources src,
                                  absl::Span<const int64_t> arg = {});

  // Like Make, for calls whose failure is a bug of ours; ends the process then.
  const UOp* MakeChecked(Op op, DType dtype, Sources src, absl::Span<const int64_t> arg = {});

  // Returns `node` with other sources; `node` itself may belong to another Graph.
  absl::StatusOr<const UOp*> WithSources(const UOp* node, Sources src);

  int64_t node_count() const;

  // Steps left to the walks for a graph that is decoded, or written for devices: one budget for all
  // of them (spec/walks.h), RESOURCE_EXHAUSTED once it is spent. Other graphs have no limit.
  int64_t walk_budget;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns every node reachable from `roots`, sources before users, each once, in the order of a
// left-to-right depth-first walk. Iterative, so a chain of a million nodes cannot overflow the
// stack. With `into_functions` false a FUNCTION is listed, but its body and parameters are not
// (unless they are reachable otherwise).
std::vector<const UOp*> PostOrder(absl::Span<const UOp* const> roots, bool into_functions = true);
inline std::vector<const UOp*> PostOrder(const UOp* root, bool into_functions = true) {
  return PostOrder(absl::MakeConstSpan(&root, 1), into_functions);
}

}  // namespace outboard
