// Gradients against central differences, in f64 on the reference interpreter.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/host_tensor.h"
#include "compiler/ir/uop.h"

namespace outboard {

// A PARAM and its value; `bound` has the symbolic dimensions filled in.
struct Input {
  const UOp* param;
  std::vector<double> values;
  std::vector<int64_t> bound = {};

  std::vector<int64_t> dims() const { return bound.empty() ? StaticDims(param->shape) : bound; }
};

// The values of `roots`, as doubles, one vector a root.
absl::StatusOr<std::vector<std::vector<double>>> Evaluate(
    Graph& g, Sources roots, const std::vector<Input>& inputs,
    const std::vector<Binding>& bindings = {});

// Checks the gradients of sum(w * y), for fixed uneven weights w, with respect to every f64 input,
// and then of sums of those, up to `order`. Fails the current test at the element that differs.
void ExpectGradients(Graph& g, const UOp* y, const std::vector<Input>& inputs, int order = 2,
                     const std::vector<Binding>& bindings = {});

}  // namespace outboard
