// In which order the axes of a kept value lie in memory.
//
// A value that is read through windows (a convolution's input, the gradient of its result) is best
// read where lanes need not follow the windowed axes, whose extents are seldom whole vectors and
// whose ends need gates: its channels go last, as the layouts for convolutions of vendors'
// libraries have it (oneDNN's nhwc). Values that are read and written beside it, element by
// element, follow. What the program was given or asks for stays row-major.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/uop.h"
#include "compiler/schedule/lower.h"
#include "compiler/schedule/materialize.h"
#include "compiler/target.h"

namespace outboard::schedule {

// A value -> its axes, outermost in memory first. Values that stay row-major are not in it.
using Layouts = absl::flat_hash_map<const UOp*, std::vector<int64_t>>;

// For the temporaries among what `kernels`, lowered with all values row-major, store.
Layouts ChooseLayouts(const UOp* sink, const Choice& choice,
                      const std::vector<LoweredKernel>& kernels, const Target& target);

// The same program in which each value of `layouts` is kept as a PERMUTE of itself, and read
// through the inverse.
struct LaidOut {
  const UOp* sink = nullptr;
  Choice choice;
};
LaidOut ApplyLayouts(Graph& graph, const UOp* sink, const Choice& choice, const Layouts& layouts);

}  // namespace outboard::schedule
