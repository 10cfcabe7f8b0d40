// Which buffers of a kernel no kernel of the step writes: weights. A launch that GPUs begin before
// those in front of it are done may ask for them already (compiler/render/ptx/prefetch.cc).
//
// It is a hint, and part of the kernel (SteadySlots), so kernels that differ in it are compiled
// each for itself. It is therefore given to kernels alone that do little else than read such a
// buffer: products of a matrix and a vector, of which decoding consists.
#pragma once

#include "compiler/ir/uop.h"
#include "compiler/schedule/schedule.h"
#include "compiler/target.h"

namespace outboard::schedule {

// Of a CUDA target whose launches overlap (sm_90 on); for others nothing is done. The kernels
// belong to `graph`.
void MarkSteady(Graph& graph, const Target& target, Schedule& schedule);

}  // namespace outboard::schedule
