// What a compiled kernel says of its launch, as the program has it: the same for all devices that
// run blocks of threads. The renderer adds the code and what else its device needs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "compiler/compiled_kernel.h"
#include "compiler/divide_up.h"
#include "compiler/program/program.h"

namespace outboard::render {

// How the blocks of a program lie in a grid: row after row of so many columns, along the grid's
// second and first axis. Block y * columns + x is at (x, y); those behind the program's last one
// have nothing to do, and their threads leave at once (docs/decisions/197-divided-grids.md).
struct GridShape {
  int64_t columns = 1, rows = 1;
};

// One row wherever a grid may have so many columns. Clusters lie in one row.
inline GridShape GridOf(const program::Program& program, int64_t columns_max) {
  const int64_t blocks = program.Extent(program::Grid::kBlock), cluster = program.cluster;
  const int64_t whole = std::max(columns_max / cluster, int64_t{1}) * cluster;
  const int64_t rows = DivideUp(blocks, whole);
  return {.columns = DivideUp(DivideUp(blocks, rows), cluster) * cluster, .rows = rows};
}

// Of CUDA, along the first axis and the second. HIP has them as well.
inline constexpr int64_t kGridColumnsMax = (int64_t{1} << 31) - 1, kGridRowsMax = (1 << 16) - 1;
// Of grids without a limit that a program could reach.
inline constexpr int64_t kColumnsUnlimited = int64_t{1} << 62;

inline CompiledKernel LaunchShapeOf(const program::Program& program, const std::string& symbol,
                                    CompiledKernel::Form form,
                                    int64_t columns_max = kColumnsUnlimited) {
  const GridShape grid = GridOf(program, columns_max);
  CompiledKernel out;
  out.form = form;
  out.symbol = symbol;
  out.buffer_count = program.buffer_count;
  out.blocks[0] = grid.columns;
  out.blocks[1] = grid.rows;
  out.threads[0] = program.Extent(program::Grid::kThread);
  out.shared_bytes = program.shared_bytes();
  out.reads_vars = program.reads_vars();
  out.copies = program.copies;
  out.blocks[2] = program.copies;
  out.tasks = program.code.empty() ? 0 : program.Extent(program::Grid::kBlock) * program.copies;
  return out;
}

}  // namespace outboard::render
