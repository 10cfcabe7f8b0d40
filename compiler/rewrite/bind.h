// Scalars and dimensions of VARs as numbers, for one run. Values are those of docs/semantics.md, as
// the compiled kernels and the interpreter have them: what a client and a worker size buffers by.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/host_tensor.h"
#include "compiler/ir/uop.h"

namespace outboard {

// Whether each of `vars` has one binding, within its range.
// Errors: INVALID_ARGUMENT, names the VAR, the value and the range.
absl::Status CheckBindings(std::span<const UOp* const> vars, std::span<const Binding> bindings);

// The value of an i64 scalar of VARs (UOp::of_vars), all of which are bound.
// Errors: INVALID_ARGUMENT    a VAR is not bound
//         UNIMPLEMENTED       THREEFRY, which is no arithmetic for a dimension
absl::StatusOr<int64_t> ValueAt(const UOp* scalar, std::span<const Binding> bindings);

// Errors: as ValueAt.
absl::StatusOr<std::vector<int64_t>> DimsAt(ShapeView shape, std::span<const Binding> bindings);

// The graph under `root` with each VAR bound to the largest value it can have.
const UOp* AtLargest(Graph& graph, const UOp* root);

}  // namespace outboard
