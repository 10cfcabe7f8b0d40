// Steps of an online kernel (plan.h) that end at a VAR: the last key of a cache, or of a prompt.
// Removes `step < end` around terms, which would hide exponentials and products from the plan's
// analysis; and, of keys in parts, the gate of steps from loads of a row.
//
// Reductions over a loop that ends early have a condition for each term: WHERE(step < end, x, 0),
// -infinity for a maximum. It hides what they are made of, exponentials of maxima and products, and
// each thread would look at it for each element. Without it these are what they are of any loop;
// lowering runs the loop to its end alone, and there decides which steps of a block count.
#pragma once

#include "compiler/ir/uop.h"
#include "compiler/kernel/loop_nest.h"

namespace outboard::program {

// Returns the kernel, in `graph`, with `step < end` taken out of the terms of sums and maxima over
// `range`. The range keeps its end. Only what leaves out all steps from the end on may compute this
// kernel.
const UOp* WithoutEndOfSteps(Graph& graph, const codegen::LoopNest& kernel, int range);

// Returns the kernel with load(q) * load(k, gate) in the place of load(q, gate) * load(k, gate),
// where q does not vary along `range` (a row of attention whose keys are padded): the other factor
// is 0 wherever this one was. A NaN that 0 times an infinity or a NaN would give is not seen, as
// with any mask (docs/semantics.md, Masks). nullptr where there is none, or where a load would not
// be proved to be in range without.
const UOp* WithoutGatesOfRows(Graph& graph, const codegen::LoopNest& kernel, int range);

}  // namespace outboard::program
