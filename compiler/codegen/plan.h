// How a kernel's loops are run: which range lies in the lanes of a vector, which are tiled into
// registers, what a reduction's partial sums are, and which loops are handed out as tasks. Every
// choice here changes speed only, except that the order of a reduction's terms is fixed by it (and
// by nothing at run time).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/codegen/kernel.h"

namespace outboard::codegen {

// One place in a tile: `active` consecutive values of the range starting at base + offset, in a
// vector of `lanes`.
struct Piece {
  int64_t offset = 0;
  int lanes = 1;
  int active = 1;
};

// A range in blocks: `trips` blocks of `step` values, each made of the pieces `main`; then, where
// the extent is no multiple, one block of the pieces `rest`, which starts at trips * step.
struct Tile {
  int range = 0;  // into Kernel::ranges
  int64_t step = 1;
  int64_t trips = 0;
  std::vector<Piece> main = {Piece{}};
  std::vector<Piece> rest;

  bool plain() const { return main.size() == 1 && main[0].lanes == 1 && rest.empty(); }
  int64_t blocks() const { return trips + (rest.empty() ? 0 : 1); }
};

struct GroupPlan {
  std::vector<Tile> loops;  // of the group's ranges, outermost first
  int partials = 1;         // running values for each result, combined in order at the end
};

struct Plan {
  std::vector<Tile> outputs;      // outermost first
  int task_loops = 0;             // the first of `outputs` that are handed out as tasks
  std::vector<GroupPlan> groups;  // as Kernel::groups

  int64_t tasks() const;
};

// What a plan is made for: the width of a vector and the number of them, of one core.
struct Machine {
  int vector_bytes = 64;
  int vector_registers = 32;
  bool no_opt = false;
};

Tile PlainTile(int range, int64_t extent);
// `count` values at a time.
Tile ScalarTile(int range, int64_t extent, int64_t count);
// `count` vectors of `lanes` at a time. With `masked`, every piece has all the lanes, some of them
// idle; else the last piece has the smallest power of two that holds what is left.
Tile VectorTile(int range, int64_t extent, int lanes, int64_t count, bool masked);

Plan MakePlan(const Kernel& kernel, const Machine& machine);

std::string PlanToString(const Kernel& kernel, const Plan& plan);

}  // namespace outboard::codegen
