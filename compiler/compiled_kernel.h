// What a compiled kernel is, for those who load and run it: plain data, no types of the compiler.
//
// Calling: `symbol` of `object` is   void k(void* const* buffers, int64_t task_begin, int64_t
// task_end); buffers[i] is the memory of GLOBAL slot i, aligned to its element; buffers of
// different slots do not overlap. Where the kernel reads VARs, buffers[buffer_count] is their
// values, an array of i64 by VAR slot; each is within its VAR's range. The whole result is there
// once [0, tasks) has been run, in any pieces, in any order, by any number of threads: each task
// writes its own elements, and the bits do not depend on how tasks are split. The object may call
// void* outboard_scratch(int64_t bytes): memory of the calling thread, aligned to a cache line,
// whose contents last until the kernel returns. One that uses the processor's tiles (AMX) calls
// void outboard_tiles()  first: who loads it asks the system for them then, or refuses it.
#pragma once

#include <cstdint>
#include <string>

namespace outboard {

struct CompiledKernel {
  std::string object;  // relocatable ELF64, x86-64, position independent
  std::string symbol;
  int64_t tasks = 0;     // 0 where there is nothing to compute
  int buffer_count = 0;  // one past the largest GLOBAL slot
  // Estimates, for reports: arithmetic on floats, memory touched if every buffer is read or written
  // once.
  int64_t flops = 0;
  int64_t bytes = 0;
};

}  // namespace outboard
