// Which accesses of a kernel lie next to each other in memory, and how wide they are: what threads
// side by side read and write.
#pragma once

#include "compiler/kernel/access_profile.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_cost.h"

namespace outboard::codegen {

// The range in which the most accesses, by their number, are consecutive; -1: none.
int RangeAlongMemory(const LoopNest& kernel, optimize::LoopCost& cost, const Body& body);

// Bytes of the widest type of those in which the kernel reads or writes most of its values, next
// to each other: threads side by side then access whole sectors, of all of these types, and rows
// have the same tile wherever they are read. By the narrowest type a thread would have the wider
// values in several accesses, each of which touches all sectors and takes a part of them, and
// more registers. What is there once for many rows comes from the caches, whatever its width.
int WidestOfStreams(const LoopNest& kernel, optimize::LoopCost& cost);

}  // namespace outboard::codegen
