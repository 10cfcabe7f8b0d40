// Collects the operations at each point of a loop nest and their accesses to memory: the input of
// the cost model (optimize/loop_cost.h).
#pragma once

#include <vector>

#include "compiler/kernel/loop_nest.h"

namespace outboard::codegen {

struct Access {
  const UOp* node = nullptr;   // LOAD or STORE, or a value that is unpacked from loads
  const UOp* index = nullptr;  // its INDEX
  RangeSet deps = 0;           // ranges that the load or store depends on, its gate included
  RangeSet irregular = 0;      // ranges that change the address, but not by a constant stride
  RangeSet divided = 0;        // of these, those that occur only as range / c or range % c
  int64_t divisor = 1;         // the largest such c
  bool rows = false;           // one of them is a remainder: consecutive elements, row by row
  bool store = false;
  bool gated = false;
  // Of a value that is unpacked: operations on what is loaded, and loads.
  int operations = 0, loads = 1;
};

// The values computed for one reduction group, or (the last Body) for the stores, without the
// reductions that they use.
struct Body {
  RangeSet ranges = 0;  // all loops around it
  double points = 1;    // of those loops
  std::vector<Access> accesses;
  std::vector<RangeSet> ops;       // for each operation on data, the ranges it depends on
  std::vector<RangeSet> slow_ops;  // the same for library calls, one per lane
};

// Returns one Body per kernel.groups, in order, and one more for the stores.
std::vector<Body> FindBodies(const LoopNest& kernel, AffineForms& forms);

}  // namespace outboard::codegen
