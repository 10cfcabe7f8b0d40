// Programs as a user writes them, by name, for tests of what the schedule makes of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/ir/uop.h"

namespace outboard::test {

enum class Size {
  kSmall,  // for the interpreter
  kReal,   // as people train
};

struct Program {
  std::string name;
  std::function<void(Size)> run;  // its last Run is the program
  bool has_small = true;          // else even the small size is too much for the interpreter
};

const std::vector<Program>& Programs();

// The graph of the program's last Run, in `graph`, and where asked for the slots of the inputs that
// it donates. Records on this thread, with an engine that computes nothing.
const UOp* RecordProgram(Graph& graph, const Program& program, Size size,
                         std::vector<int64_t>* donated = nullptr);

}  // namespace outboard::test
