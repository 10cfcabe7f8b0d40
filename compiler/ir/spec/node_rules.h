// The rules of single nodes, one function a family of operations, called by CheckNode
// (compiler/ir/spec.h) alone. Each returns the dtype and shape of the node's value, or
// INVALID_ARGUMENT with the operation, the rule, and what was found.
//
// CheckNode has seen to the operation's code and the number of its sources before. It checks the
// shape that is returned.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compiler/ir/print.h"
#include "compiler/ir/spec.h"
#include "compiler/ir/uop.h"

namespace outboard::spec {

// A node that is not made yet.
struct Node {
  Graph& graph;
  Op op;
  DType dtype;
  Sources src;    // the operation's own
  Sources extra;  // of symbolic dimensions
  absl::Span<const int64_t> arg;
};

using Result = absl::StatusOr<Inferred>;

Result CheckLeaf(const Node& n);        // PARAM, BUFFER, CONST, VAR, IOTA, GLOBAL, RANGE
Result CheckMovement(const Node& n);    // RESHAPE, EXPAND, PERMUTE, FLIP, PAD, SHRINK
Result CheckAlu(const Node& n);         // element by element
Result CheckReduce(const Node& n);
Result CheckCast(const Node& n);        // CAST, BITCAST
Result CheckFunction(const Node& n);
Result CheckCall(const Node& n);
Result CheckTuple(const Node& n);       // TUPLE, GETTUPLE
Result CheckLayout(const Node& n);
Result CheckCollective(const Node& n);  // UNSHARD, REDUCE_SCATTER, ALL_REDUCE, ALL_TO_ALL, COPY
Result CheckKernelNode(const Node& n);  // INDEX, LOAD, STORE, REDUCE_LOOP

// ---- what they share

template <typename... Parts>
absl::Status Broken(Op op, const Parts&... parts) {
  return absl::InvalidArgumentError(
      absl::StrCat(absl::string_view(Name(op).data(), Name(op).size()), ": ", parts...));
}

inline std::string Str(DType dtype) { return std::string(Name(dtype)); }
inline std::string Str(ShapeView shape) { return ShapeToString(shape); }

inline Result Typed(DType dtype, ShapeView shape) {
  return Inferred{dtype, Shape(shape.begin(), shape.end())};
}

// Limits of every shape: its rank, each dimension, the number of elements.
absl::Status CheckShape(Op op, ShapeView shape);
// Each axis is one of `rank`, and none is given twice.
absl::Status CheckAxes(const Node& n, absl::Span<const int64_t> axes, int rank);
// `code` is an operation by which values of `dtype` are reduced.
absl::Status CheckReducer(const Node& n, int64_t code, DType dtype);
// Reads the dimensions arg[begin...]; symbolic ones take the next of `extra`.
absl::StatusOr<Shape> ReadDims(Op op, absl::Span<const int64_t> arg, size_t begin, Sources extra);

}  // namespace outboard::spec
