// Stores only the rows that change when a buffer is updated in place.
//
// A graph spells "row r changes" as WHERE(row == r, new, old) over the whole buffer. If the result
// is written over `old`, all other rows keep their value, and the loop over rows needs one
// iteration.
#pragma once

#include "compiler/ir/uop.h"

namespace outboard::schedule {

// Returns the kernel without those output ranges for which every STORE is of the form
// WHERE(range == scalar, value, what the buffer holds), with a scalar of VARs. Returns `ast` if
// there is no such range.
const UOp* StoreChangedRows(Graph& graph, const UOp* ast);

}  // namespace outboard::schedule
