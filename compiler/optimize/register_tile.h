// The register tile: how much of two output ranges, and how many vectors, a kernel computes side by
// side. And what that costs in LLVM's time, which grows with the length of what it compiles. It is
// paid once, what the tile saves at each run; kCodePrice (heuristics.h) says how much of the one is
// worth the other. Threads: pure.
#pragma once

#include <cstdint>

#include "compiler/kernel/loop_nest.h"

namespace outboard::optimize {

struct RegisterTile {
  int a = -1, b = -1;                   // output ranges; -1: none
  int64_t ta = 1, tb = 1, vectors = 1;  // of each, and of the range in lanes
  double cost = 0;
  double code = 0;  // operations that are written out, what is left over of the tile included

  // How many of the output range `range` are side by side. `lanes`: the range in lanes.
  int64_t CountIn(int range, int lanes) const;
  // How many of something there are, by the ranges that it depends on.
  double Copies(codegen::RangeSet deps, int lanes) const;
  // Adds to `cost` and `code`, in which `size` is that of one tile, what it means that `count` at a
  // time do not fit `extent`: some work is for nothing, and the rest is a tile of its own.
  void AddRest(int64_t extent, int64_t count, double size);
};

// Returns how many vectors of an elementwise kernel are computed side by side: at most `most`,
// halved until they save what they cost. `size`: operations of one vector; `vectors`: of a run.
int64_t VectorsSideBySide(int64_t most, double size, double vectors,
                          double code_price);  // as of HeuristicOpts

}  // namespace outboard::optimize
