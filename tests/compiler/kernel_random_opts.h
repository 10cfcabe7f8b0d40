// Random lists of Opts that are legal for a kernel.
#pragma once

#include <random>
#include <vector>

#include "compiler/ir/uop.h"
#include "compiler/optimize/loop_plan.h"
#include "compiler/optimize/opt.h"

namespace outboard::test {

// For a processor.
std::vector<codegen::Opt> RandomOpts(const UOp* sink, const Target& target, std::mt19937& random);

// For a device that runs blocks of threads.
std::vector<codegen::Opt> RandomThreadOpts(const UOp* sink, const Target& target,
                                           std::mt19937& random);

}  // namespace outboard::test
