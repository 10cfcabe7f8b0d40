// What is computed at each point of a loop nest, and how it touches memory: the input of the
// planner's costs.
#pragma once

#include <vector>

#include "compiler/kernel/loop_nest.h"

namespace outboard::codegen {

struct Access {
  const UOp* node = nullptr;   // LOAD or STORE
  const UOp* index = nullptr;  // its INDEX
  RangeSet deps = 0;           // of the load or store, its gate included
  RangeSet irregular = 0;      // ranges that move the address, but not by a constant stride
  RangeSet divided = 0;        // of these, where it is only by range / c or range % c
  int64_t divisor = 1;         // the largest such c
  bool rows = false;           // a remainder is among them: consecutive elements, row by row
  bool store = false;
  bool gated = false;
};

// The values of one reduction group, or (the last) of the stores: without the reductions that they
// use.
struct Body {
  RangeSet ranges = 0;  // all loops around it
  double points = 1;    // of those loops
  std::vector<Access> accesses;
  std::vector<RangeSet> ops;       // of each operation on data, what it depends on
  std::vector<RangeSet> slow_ops;  // calls of a library, one for each lane
};

// As kernel.groups, and one more for the stores.
std::vector<Body> FindBodies(const LoopNest& kernel, AffineForms& forms);

}  // namespace outboard::codegen
