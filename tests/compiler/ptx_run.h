// Runs kernels of Form::kPtx on the PTX machine (tests/gpu/ptx), which executes what a GPU would
// and reports what no GPU promises.
#pragma once

#include <span>
#include <string>

#include "absl/status/status.h"
#include "compiler/compiled_kernel.h"
#include "tests/compiler/kernel_run.h"
#include "tests/gpu/ptx/machine.h"

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
// 0. `bank_conflicts`, unless it is null: how often an access to shared memory waits for a bank.
// Errors: what the machine reports
//         INVALID_ARGUMENT     text that it does not know
//         FAILED_PRECONDITION  a plan of the kernel was given up (CompiledKernel::given_up): a test
//                              that knows of it compares the list and clears it
absl::Status RunOnPtxMachine(const CompiledKernel& kernel, Buffers& buffers,
                             std::span<const int64_t> vars = {}, uint64_t seed = 1,
                             uint64_t* bank_conflicts = nullptr, MachineCounts* counts = nullptr,
                             uint64_t inexact = 1);

// The same on a machine that is there, of buffers that lie at these addresses, copy after copy; the
// last address is that of the VARs where the kernel reads them. Errors as above.
absl::Status LaunchOnPtxMachine(const CompiledKernel& kernel, ptx::Machine& machine,
                                std::span<const uint64_t> addresses);

// Launch and text of a kernel, without the lines that say for which GPU it is unless it has maps:
// where those for several GPUs are equal, one of them is run.
std::string BodyOf(const CompiledKernel& kernel);

}  // namespace outboard::test
