// Accesses of single elements that lie next to each other as accesses of several lanes: programs
// that keep what a thread computes in registers, as those of matrix units, store one by one.
#pragma once

#include "compiler/program/program.h"

namespace outboard::render {

// Returns a program that does the same. A load may come earlier and a store later than it was, past
// accesses to other memories, and to other elements behind the same index, but past no barrier,
// loop or branch.
program::Program JoinAccesses(const program::Program& program);

}  // namespace outboard::render
