// Small graphs of f64, at least one for each operation that has a gradient: the table that the
// tests of gradients go through.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "compiler/ir/uop.h"

namespace outboard {

struct GradientCase {
  const char* name;
  std::vector<std::vector<int64_t>> shapes;  // of the inputs
  double low, high;                          // of their values
  // Works for every float type of inputs.
  std::function<const UOp*(Graph&, const std::vector<const UOp*>&)> build;
};

std::vector<GradientCase> GradientCases();

}  // namespace outboard
