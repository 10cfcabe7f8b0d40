// Rows whose length is no multiple of a vector, and which threads may have in vectors nonetheless:
// those at the ends of a row lie within it in part (Tile::odd).
#pragma once

#include <cstdint>
#include <optional>

#include "compiler/kernel/loop_nest.h"

namespace outboard::codegen {

// Whether some row of `extent` values begins in the middle of a vector of `lanes`. nullopt: not all
// that the kernel loads and stores along such rows begins at the same place of a vector, so that
// one vector of the row would be several accesses.
std::optional<bool> BeginWithinVector(const LoopNest& kernel, int64_t extent, int64_t lanes);

}  // namespace outboard::codegen
