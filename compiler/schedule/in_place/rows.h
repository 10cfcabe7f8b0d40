// Kernels that read a row in loops and then store it: a softmax, and the gradient of a
// cross-entropy. Such a kernel may store a row over the one that it read.
#pragma once

#include <cstdint>

#include "compiler/ir/uop.h"

namespace outboard::schedule {

// Whether the kernel `ast`, which stores slot `to` at the place of each point once, may do so over
// slot `from`. It may if
//   - its outer output ranges number rows: blocks of elements that do not overlap, the same of both
//     slots;
//   - it loads `from` where it stores, or in reductions of the same row;
//   - all reductions are of rows, and the stored value depends on each of them: whoever has
//     computed it has read the whole row.
// Threads that divide a row have to wait for each other between their last load and their first
// store, and tasks may not divide it: compiler/optimize/rows_in_place.h sees to that.
bool ReadsRowsBefore(const UOp* ast, int64_t to, int64_t from);

}  // namespace outboard::schedule
