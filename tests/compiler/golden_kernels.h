// Lines of programs by name, whose kernels are reviewed as text (tests/compiler/golden) and
// assembled for every GPU.
#pragma once

#include <functional>
#include <ostream>
#include <vector>

#include "client/tensor/tensor.h"

namespace outboard::test {

struct GoldenKernel {
  const char* name;
  std::function<std::vector<Tensor>()> results;
  bool decomposed = false;  // show transcendental operations as arithmetic
};

const std::vector<GoldenKernel>& GoldenKernels();

inline void PrintTo(const GoldenKernel& golden, std::ostream* out) { *out << golden.name; }

}  // namespace outboard::test
