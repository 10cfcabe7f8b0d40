// Random lists of Opts that are legal for a kernel.
#pragma once

#include <random>
#include <vector>

#include "compiler/codegen/opt.h"
#include "compiler/codegen/plan.h"
#include "compiler/ir/uop.h"

namespace outboard::test {

std::vector<codegen::Opt> RandomOpts(const UOp* sink, const codegen::Machine& machine,
                                     std::mt19937& random);

}  // namespace outboard::test
