// Where Hoist puts each instruction of a program.
#pragma once

#include <vector>

#include "compiler/program/program.h"

namespace outboard::program {

// The scopes of a program are numbered from the outside: 0 is the outermost one, and a loop or
// branch opens one for what is in it, itself included. So does the SPECIAL of blocks outside of all
// loops: what does not depend on it is computed once for all blocks. That scope has no end.
struct Placement {
  explicit Placement(const Program& program);

  std::vector<int> depth;    // by instruction: the scope that it may move to
  ValueId first_block = -1;  // the SPECIAL that opens a scope; -1: none does
};

}  // namespace outboard::program
