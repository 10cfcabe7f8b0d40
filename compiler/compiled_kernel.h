// A compiled kernel, as the code that loads and runs it sees it: plain data, without types of the
// compiler.
//
// Calling: `symbol` of `object` is   void k(void* const* buffers, int64_t task_begin, int64_t
// task_end); buffers[i] is the memory of GLOBAL slot i, aligned to its element; buffers of
// different slots do not overlap. If the kernel reads VARs, buffers[buffer_count] points to their
// values, an array of i64 indexed by VAR slot; each value is within its VAR's range. The result is
// complete once [0, tasks) has been run, in any pieces, in any order, by any number of threads:
// each task writes its own elements, and the bits do not depend on how tasks are split. The object
// may call void* outboard_scratch(int64_t bytes): memory of the calling thread, aligned to a cache
// line, whose contents last until the kernel returns. An object that uses the processor's tile
// registers (AMX) first calls void outboard_tiles(); the loader resolves it by requesting them from
// the operating system, or refuses the object.
//
// The above holds for Form::kElfX86. For kOpenClC, `object` is source text with one kernel named
// `symbol`, launched as blocks[] groups of threads[] work-items each (in OpenCL's words, a global
// size of blocks * threads). Its arguments: a `__global uchar*` for each buffer slot 0 ..
// buffer_count - 1, in order, whatever the type of the elements; then, with `reads_vars`, a
// `__global const long*` with the VARs' values by slot. `tasks` is the number of blocks.
//
// For kPtx, `object` is PTX text for NVIDIA's GPUs with one `.visible .entry` named `symbol`,
// launched as a grid of blocks[] with threads[] threads each; `.maxntid` is threads[]. Its
// parameters are `.u64`: for each buffer slot 0 .. buffer_count - 1, in order, the buffer's address
// in global memory; then, with `reads_vars`, that of the VARs' values, i64 by slot. The text
// declares its shared memory itself (`shared_bytes`; the launch asks for none) and uses no local
// memory. `tasks` is the number of blocks.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace outboard {

struct CompiledKernel {
  // The format of `object`, which decides how it is loaded and called.
  enum class Form : uint8_t {
    kElfX86 = 0,   // relocatable ELF64, x86-64, position independent
    kOpenClC = 1,  // source text
    kPtx = 2,      // assembler text for NVIDIA's GPUs
  };

  std::string object;  // in the format of `form`
  std::string symbol;
  int64_t tasks = 0;     // 0 where there is nothing to compute
  int buffer_count = 0;  // one past the largest GLOBAL slot
  // Estimates, for reports: arithmetic on floats, memory touched if every buffer is read or written
  // once.
  int64_t flops = 0;
  int64_t bytes = 0;
  Form form = Form::kElfX86;
  // Set for devices that run blocks of threads.
  std::array<int64_t, 3> blocks = {1, 1, 1};
  std::array<int64_t, 3> threads = {1, 1, 1};  // of one block
  int64_t shared_bytes = 0;                    // of one block; the text declares them itself
  bool reads_vars = false;
};

}  // namespace outboard
