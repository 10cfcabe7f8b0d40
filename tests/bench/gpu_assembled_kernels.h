// The kernels that are compiled for every kind of GPU and assembled by NVIDIA's assembler: those of
// the goldens (tests/compiler/golden_kernels.h), and what is left to matrix units: attention and
// its gradients, convolutions of bf16 and theirs, products of f32 and bf16; and training steps of
// GPT-2 124M.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tests/bench/gpu_plan.h"

namespace outboard::bench {

// Scheduled for a GPU as an engine does it. Attention has heads of 64, 128 and 256, of bf16 and
// f16.
std::vector<GpuProgram> GoldenPrograms();
std::vector<GpuProgram> MatrixPrograms();
// 8 x 1,024 tokens, in f32 and with products of bf16.
GpuProgram Gpt2StepProgram(DType products);
std::vector<GpuProgram> Gpt2StepPrograms();

struct AssembledKernels {
  int kernels = 0;    // distinct, and those that were not compiled
  int assembled = 0;  // of these
  int by_warpgroups = 0;
  int64_t spill_bytes = 0, local_bytes = 0, warnings = 0;  // of all of them
  int64_t registers_max = 0;
  int64_t serialised = 0;  // kernels that wait for products of warpgroups one by one
  int64_t ignored = 0;     // kernels of which the assembler leaves an instruction out
  double seconds = 0;      // of the assembler's processor time, for all of them
  double seconds_max = 0;  // for the one that takes longest
  std::string failures;    // names of those that were not assembled, and why
  // Bytes that a kernel spills, or has of a thread's own memory if that is more, where there are
  // any: by "program number for arch".
  std::map<std::string, int64_t> spills;

  void Add(const AssembledKernels& other);
};
// For one kind of GPU, with 132 multiprocessors, as all below. `ptxas`: its path.
AssembledKernels AssembleAll(std::span<const GpuProgram> programs, const std::string& arch,
                             const std::string& ptxas);

// The plans of kernels that are given up (CompiledKernel::given_up), each behind "program number: "
std::vector<std::string> PlansGivenUp(std::span<const GpuProgram> programs,
                                      const std::string& arch);

}  // namespace outboard::bench
