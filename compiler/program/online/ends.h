// Steps of an online kernel (plan.h) that end at a VAR: the last key of a cache, or of a prompt.
// Removes `step < end` around terms, which would hide exponentials and products from the plan's
// analysis; and, of keys in parts, the gate of steps from loads of a row.
//
// In a reduction over a loop that ends early each term is WHERE(step < end, x, 0), for a maximum
// WHERE(step < end, x, -infinity). The analysis would not see that x is an exponential or a
// product, and each thread would test the condition for each element. So it is removed here, and
// lowering runs the loop up to the end only, and masks the steps beyond it in the last block.
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
// is 0 wherever this one was, or the product is not chosen there. Both may be unpacked from several
// loads. A NaN that 0 times an infinity or a NaN would give is not seen, as with any mask
// (docs/semantics.md, Masks). nullptr where there is none, or where a load would not be proved to
// be in range without.
const UOp* WithoutGatesOfRows(Graph& graph, const codegen::LoopNest& kernel, int range);

}  // namespace outboard::program
