// Random programs of the kind that people write: layers, attention, convolutions, norms, sums,
// selections and losses, with their gradients and updates, of sizes around those at which the
// compiler's rewrites begin.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/compiler/random_graph.h"

namespace outboard::test {

struct WrittenProgram {
  RandomCase program;
  std::vector<int64_t> donated;  // slots of inputs
  // One line an operation; a client's program of these lines gives the graph.
  std::string text;
  bool narrow = false;  // floats of 16 bits are between the inputs and results
};

// Equal seeds give equal programs, on every machine. Products take some million operations at most.
WrittenProgram WriteProgram(uint64_t seed);

}  // namespace outboard::test
