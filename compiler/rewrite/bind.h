// Evaluates scalars and dimensions made of VARs for one run. Values follow docs/semantics.md, as in
// compiled kernels and the interpreter; clients and workers size buffers by them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/host_tensor.h"
#include "compiler/ir/uop.h"

namespace outboard {

// Checks that each of `vars` has one binding, within its range. Errors: INVALID_ARGUMENT, names the
// VAR, the value and the range.
absl::Status CheckBindings(std::span<const UOp* const> vars, std::span<const Binding> bindings);

// Returns the value of an i64 scalar of VARs (UOp::of_vars), all of which are bound.
// Errors: INVALID_ARGUMENT    a VAR is not bound
//         UNIMPLEMENTED       THREEFRY, which is no arithmetic for a dimension
absl::StatusOr<int64_t> ValueAt(const UOp* scalar, std::span<const Binding> bindings);

// Returns the dimensions of `shape` as numbers. Errors: as ValueAt.
absl::StatusOr<std::vector<int64_t>> DimsAt(ShapeView shape, std::span<const Binding> bindings);

// Returns the graph under `root` with each VAR replaced by its largest value.
const UOp* AtLargest(Graph& graph, const UOp* root);

}  // namespace outboard
