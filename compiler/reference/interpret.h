// The reference interpreter: defines the result of a tensor graph by evaluating it.
//
// Evaluates a graph node by node in the most explicit way; docs/semantics.md is its specification,
// and every backend is tested against it. It shares no code with the compiler except compiler/ir.
//
// Values. A float is computed as a double and rounded once to the node's type after each node; for
// +, -, *, /, sqrt that equals IEEE arithmetic of the type. A float REDUCE accumulates doubles in
// row-major order and rounds at the end.
//
// Memory. A value is stored until its last use. Values of over stored_elements elements (mainly the
// products before a REDUCE) are not stored: their elements are computed when a REDUCE or a result
// reads (pulls) them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/host_tensor.h"
#include "compiler/ir/uop.h"
#include "compiler/reference/limits.h"

namespace outboard {

struct InterpretOptions {
  int64_t work_max = reference_limits::kWorkMax;    // element operations
  int64_t bytes_max = reference_limits::kBytesMax;  // of stored values and of results
  int64_t stored_elements =
      reference_limits::kStoredElements;  // larger values are computed on demand
};

// Returns the values of the sources of `sink`, in order. params[i] is PARAM slot i; params without
// a PARAM are ignored.
//
// Errors: INVALID_ARGUMENT    `sink` is no SINK of a tensor graph; a PARAM without a tensor of its
// type and shape; a VAR
//                             without a binding in its range; two bindings of a slot
//         UNIMPLEMENTED       more than one device
//         RESOURCE_EXHAUSTED  a limit of `options`; the message names the node, the limit and the
//         value
// Threads: pure.
absl::StatusOr<std::vector<HostTensor>> Interpret(const UOp* sink,
                                                  std::span<const HostTensor> params,
                                                  std::span<const Binding> bindings = {},
                                                  const InterpretOptions& options = {});

}  // namespace outboard
