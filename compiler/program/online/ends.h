// Steps of an online kernel (plan.h) that end at a VAR: the last key of a cache, or of a prompt.
//
// Reductions over a loop that ends early have a condition for each term: WHERE(step < end, x, 0),
// -infinity for a maximum. It hides what they are made of, exponentials of maxima and products, and
// each thread would look at it for each element. Without it these are what they are of any loop;
// lowering runs the loop to its end alone, and there decides which steps of a block count.
#pragma once

#include "compiler/ir/uop.h"
#include "compiler/kernel/loop_nest.h"

namespace outboard::program {

// Returns the kernel, in `graph`, without the conditions that a step of `range` lies below its end
// in terms of sums and maxima over it. The range keeps its end. Only what leaves out all steps from
// the end on may compute this kernel.
const UOp* WithoutEndOfSteps(Graph& graph, const codegen::LoopNest& kernel, int range);

}  // namespace outboard::program
