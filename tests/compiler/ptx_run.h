// Runs kernels of Form::kPtx on the PTX machine (tests/gpu/ptx), which executes what a GPU would
// and reports what no GPU promises; and assembles them with NVIDIA's assembler, where there is one.
#pragma once

#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/compiled_kernel.h"
#include "tests/compiler/kernel_run.h"

namespace outboard::test {

// What the machine counts: accesses to shared memory by ordinary instructions and the wavefronts
// that they take, sectors of 32 bytes of buffers that are read and written, and instructions of
// warps.
struct MachineCounts {
  uint64_t shared_accesses = 0, shared_wavefronts = 0, global_sectors = 0, warp_instructions = 0;
};

// The shared memory that a launch asks for: what the text declares without a size; of a text that
// declares all of it 0.
uint32_t SharedBytesOfLaunch(const CompiledKernel& kernel);

// Every buffer is an allocation of exactly its bytes; of a kernel in several copies there are those
// of the first copy first. The seed is that of the order of warps and copies. `inexact`: powers of
// two and reciprocals by the unit are as wrong as PTX allows, in a way of that number, unless it is
// 0. Errors: what the machine reports, and INVALID_ARGUMENT for text that it does not know.
// `bank_conflicts`, unless it is null: how often an access to shared memory waits for a bank.
absl::Status RunOnPtxMachine(const CompiledKernel& kernel, Buffers& buffers,
                             std::span<const int64_t> vars = {}, uint64_t seed = 1,
                             uint64_t* bank_conflicts = nullptr, MachineCounts* counts = nullptr,
                             uint64_t inexact = 1);

// Launch and text of a kernel, without the lines that say for which GPU it is unless it has maps:
// where those for several GPUs are equal, one of them is run.
std::string BodyOf(const CompiledKernel& kernel);

// The assembler's path: $OUTBOARD_PTXAS, the one that `scripts/setup --assembler` has fetched, or
// `ptxas` in $PATH; empty where there is none.
std::string FindPtxas();
// The disassembler's, likewise: $OUTBOARD_NVDISASM, or `nvdisasm`.
std::string FindNvdisasm();
// What the assembler says of a kernel. Registers are those of a thread; the other bytes are memory
// of a thread's own, which lies behind all caches.
struct Assembled {
  int64_t registers = 0;
  int64_t stack_bytes = 0;
  int64_t spill_bytes = 0;  // stored and loaded
  int64_t warnings = 0;
  bool serialised = false;  // it waits for products of warpgroups one by one
  bool ignored = false;     // it leaves an instruction out, as setmaxnreg
};
// Errors: INTERNAL with the assembler's words.
absl::StatusOr<Assembled> AssembleKernel(const std::string& ptxas, const std::string& ptx,
                                         const std::string& arch);
// The same, of which only stack_bytes is returned: what is spilled, and what lies in a thread's own
// memory. (A thing may be stored and loaded several times: Assembled::spill_bytes counts that.)
absl::StatusOr<int64_t> StackBytesOf(const std::string& ptxas, const std::string& ptx,
                                     const std::string& arch);

}  // namespace outboard::test
