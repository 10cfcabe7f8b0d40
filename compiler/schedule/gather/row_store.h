// An update of a few rows, in place, writes those rows.
//
// WHERE(row == at, new, old) over a whole buffer is how a graph says that a row changes: it has no
// other way. Written over `old`, every other row stays what it is, and the loop over rows is one
// turn.
#pragma once

#include "compiler/ir/uop.h"

namespace outboard::schedule {

// The kernel without the output ranges of which a scalar of VARs names the only turn that changes
// anything: every STORE then is of WHERE(range == scalar ..., value, what lies in its place). The
// kernel itself where there is none.
const UOp* StoreChangedRows(Graph& graph, const UOp* ast);

}  // namespace outboard::schedule
