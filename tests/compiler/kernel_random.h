// Random kernels: loops of awkward lengths, loads with strides, quotients, remainders, gates and
// reversals, reductions of every kind.
#pragma once

#include <cstdint>

#include "compiler/ir/uop.h"

namespace outboard::test {

// A SINK whose loads and stores are in range wherever their gates hold. Equal seeds give equal
// kernels.
const UOp* RandomKernel(Graph& g, uint32_t seed);

}  // namespace outboard::test
