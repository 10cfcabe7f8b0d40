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

// Every buffer is an allocation of exactly its bytes. Errors: what the machine reports, and
// INVALID_ARGUMENT for text that it does not know.
absl::Status RunOnPtxMachine(const CompiledKernel& kernel, Buffers& buffers,
                             std::span<const int64_t> vars = {}, uint64_t seed = 1);

// The assembler's path: $OUTBOARD_PTXAS, or `ptxas` in $PATH; empty where there is none.
std::string FindPtxas();
// Returns the bytes of a thread's registers that the assembler puts on its stack. Errors: INTERNAL
// with the assembler's words.
absl::StatusOr<int64_t> Assemble(const std::string& ptxas, const std::string& ptx,
                                 const std::string& arch);

}  // namespace outboard::test
