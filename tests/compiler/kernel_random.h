// Random kernels: loops of awkward lengths, loads with strides, quotients, remainders, gates and
// reversals, reductions of every kind; some update what they store to in place, some add rows to
// places one after the other.
#pragma once

#include <cstdint>

#include "compiler/ir/uop.h"

namespace outboard::test {

// A SINK whose loads and stores are in range wherever their gates hold. Equal seeds give equal
// kernels.
const UOp* RandomKernel(Graph& g, uint32_t seed);

}  // namespace outboard::test
