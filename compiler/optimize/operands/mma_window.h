// Few channels: sums over the taps of small windows, as those of a network's first layer, whose
// operands are copied element by element. One range, that of the taps that lie side by side, is
// then counted in slots, a power of two of them, some of which have no tap: a window's taps are at
// fixed places of 8 to 32 bytes of shared memory, and only the places of whole windows have to be
// computed. In the sum of a convolution both operands have the taps as steps; in the gradient of
// weights the image has them as columns (or rows). The slots without a tap are zeros there.
#pragma once

#include "compiler/optimize/operands/mma_tile.h"

namespace outboard::codegen {

// Sets plan.product.window and what follows from it (slots instead of taps in the counts of steps,
// or of rows or columns, and MmaFactor::by_windows) where this saves instructions and the plan's
// tile can be copied so. Leaves the plan as it is, and returns false, where not.
bool PadWindows(const LoopNest& kernel, MmaPlan& plan);

}  // namespace outboard::codegen
