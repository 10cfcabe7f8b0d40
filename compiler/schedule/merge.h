// Kernels over the same output ranges become one with several stores.
#pragma once

#include <vector>

#include "compiler/ir/uop.h"
#include "compiler/schedule/lower.h"

namespace outboard::schedule {

// A kernel that may store several values: slot i < stores of `buffers` is written, the others are
// read.
struct MergedKernel {
  const UOp* ast = nullptr;
  std::vector<const UOp*> buffers;
  int stores = 1;
};

// Joins, in order, each kernel without loops of its own into the earliest kernel that has the same
// output ranges and shares a buffer with it, if nothing it reads is computed in between. What it
// reads of that kernel's stores, which must be at the very place stored, it takes from the
// register. `kernels` is in a valid order, and so is the result.
std::vector<MergedKernel> MergeKernels(Graph& graph, std::vector<LoweredKernel> kernels);

}  // namespace outboard::schedule
