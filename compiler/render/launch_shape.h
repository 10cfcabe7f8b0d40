// What a compiled kernel says of its launch, as the program has it: the same for all devices that
// run blocks of threads. The renderer adds the code and what else its device needs.
#pragma once

#include <string>

#include "compiler/compiled_kernel.h"
#include "compiler/program/program.h"

namespace outboard::render {

inline CompiledKernel LaunchShapeOf(const program::Program& program, const std::string& symbol,
                                    CompiledKernel::Form form) {
  CompiledKernel out;
  out.form = form;
  out.symbol = symbol;
  out.buffer_count = program.buffer_count;
  out.blocks[0] = program.Extent(program::Grid::kBlock);
  out.threads[0] = program.Extent(program::Grid::kThread);
  out.shared_bytes = program.shared_bytes();
  out.reads_vars = program.reads_vars();
  out.copies = program.copies;
  out.blocks[2] = program.copies;
  out.tasks = program.code.empty() ? 0 : out.blocks[0] * program.copies;
  return out;
}

}  // namespace outboard::render
