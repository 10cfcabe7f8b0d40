// Chooses Opts for devices that run blocks of threads, without measuring anything: by waves of
// blocks, occupancy, and what neighbouring threads find in memory.
#pragma once

#include <vector>

#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/opt.h"
#include "compiler/target.h"

namespace outboard::codegen {

// Returns Opts that ApplyOpts accepts; none where plain threads are as good or the kernel has steps
// of a sequence. Deterministic.
std::vector<Opt> ThreadOpts(const LoopNest& kernel, const Target& target);

}  // namespace outboard::codegen
