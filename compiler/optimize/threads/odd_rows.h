// Rows whose length is no multiple of a vector, and which threads may have in vectors nonetheless:
// those at the ends of a row lie within it in part (Tile::odd).
#pragma once

#include <cstdint>
#include <optional>

#include "compiler/kernel/loop_nest.h"

namespace outboard::codegen {

// Where rows of so many values begin, if all that the kernel loads and stores along them begins at
// the same place of a vector of `lanes`, in each row: whether that is within a vector. nullopt: a
// vector of one of them would be several accesses of others.
std::optional<bool> BeginWithinVector(const LoopNest& kernel, int64_t extent, int64_t lanes);

}  // namespace outboard::codegen
