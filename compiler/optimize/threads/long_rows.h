// What the choice of threads asks of rows that are long: which buffers have them, who reads them
// again, and what the assembler needs more registers for.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/uop.h"
#include "compiler/kernel/access_profile.h"
#include "compiler/kernel/loop_nest.h"

namespace outboard::codegen {

// The buffers of which `bodies[main]` reads a row along the range `along`, and of which another
// body, a reduction or what is stored, reads one of the same length: ascending, by slot.
std::vector<int64_t> SlotsReadAgain(const LoopNest& kernel, const std::vector<Body>& bodies,
                                    int main, int along);

// Whether the value of an element depends on its place in the row, as where a label is.
bool ComparesPlaces(const LoopNest& kernel, int along);

// How many loads lie along an output range of that length alone, as scales and biases of a norm.
int64_t OperandsBeside(const LoopNest& kernel, int along);

}  // namespace outboard::codegen
