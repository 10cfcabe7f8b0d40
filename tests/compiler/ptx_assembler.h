// Assembles the text of kernels of Form::kPtx with NVIDIA's assembler, where there is one. Without
// the PTX machine, which runs them (ptx_run.h): tests/layers/ptx_machine_labels_test.cc.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace outboard::test {

// The assembler's path: $OUTBOARD_PTXAS, the one that `scripts/setup --assembler` has fetched, or
// `ptxas` in $PATH; empty where there is none.
std::string FindPtxas();
// The disassembler's, likewise: $OUTBOARD_NVDISASM, or `nvdisasm`.
std::string FindNvdisasm();
// What the assembler reports about a kernel. Registers and bytes are those of one thread. The bytes
// are in local memory, which is part of the GPU's global memory.
struct Assembled {
  int64_t registers = 0;
  int64_t stack_bytes = 0;
  int64_t spill_bytes = 0;  // stored and loaded
  int64_t warnings = 0;
  bool serialised = false;  // it waits for products of warpgroups one by one
  bool ignored = false;     // it leaves an instruction out, as setmaxnreg
  double seconds = 0;       // of processor time, of the assembler
};
// Most texts are those of the run before. What the assembler says of one that it takes is kept in
// the build folder (tests/assembled) or in $OUTBOARD_ASSEMBLED, and nowhere where that is empty: by
// the hash of the text, the GPU and the assembler's path and version. What it refuses is not kept.
// Errors: INTERNAL with the assembler's words.
absl::StatusOr<Assembled> AssembleKernel(const std::string& ptxas, const std::string& ptx,
                                         const std::string& arch);
// The same, of which only stack_bytes is returned: what is spilled, and what lies in a thread's own
// memory. (A thing may be stored and loaded several times: Assembled::spill_bytes counts that.)
absl::StatusOr<int64_t> StackBytesOf(const std::string& ptxas, const std::string& ptx,
                                     const std::string& arch);

}  // namespace outboard::test
