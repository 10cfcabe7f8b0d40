// Puts kernels together that a GPU runs as one launch: equal ones that do not depend on each other,
// over other buffers each. The updates of an optimiser are the example: each parameter has a kernel
// of its own, most of which are equal and small. A launch costs about as much as such a kernel, and
// one alone does not fill the device.
//
// A kernel waits for later ones like it, as long as these do not wait for it; so all updates of a
// step run at its end. What a kernel reads lives until then: the caller compares the memory that
// both orders need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "compiler/schedule/fuse_kernels.h"
#include "compiler/schedule/in_place.h"

namespace outboard::schedule {

// An order of kernels; those of one launch follow one another.
struct Launches {
  std::vector<size_t> order;  // kernels, by their numbers before
  std::vector<int> together;  // for each place in `order`: how many kernels, from this one on, are
                              // one launch; 0 for those that are in an earlier one's
};

// Every kernel as a launch of its own, in their order.
Launches SingleLaunches(size_t kernels);

// How many views (MappedTensor) each copy of a kernel has in a launch of so many: they are
// parameters, as addresses are.
using MapsOfCopy = std::function<int64_t(const UOp* kernel, int64_t copies)>;

// `kernels` must be in a valid order; `over` says which inputs are written. The result is a valid
// order, too; theirs, if nothing can be put together. A launch has as many copies as there is room
// for their parameters (ParameterBytes in compiler/copies.h); without `maps_of` no kernel has
// views. Deterministic. Beyond kGroupedKernelsMax kernels nothing is put together: time grows with
// their square, a second at 16,000.
inline constexpr size_t kGroupedKernelsMax = 4096;
Launches GroupLaunches(const std::vector<FusedKernel>& kernels, const WrittenOver& over,
                       const MapsOfCopy& maps_of = nullptr);

}  // namespace outboard::schedule
