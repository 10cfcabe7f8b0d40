// Runs online kernels of a GPU (compiler/program/online): their programs in the interpreter, their
// PTX on the PTX machine, both against the reference interpreter.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "compiler/ir/host_tensor.h"
#include "compiler/optimize/opt.h"
#include "compiler/program/online/plan.h"
#include "compiler/schedule/schedule.h"
#include "tests/compiler/attention_programs.h"
#include "tests/compiler/harness.h"
#include "tests/compiler/kernel_run.h"

namespace outboard::test {

inline constexpr int kMultiprocessors = 132;

// How the kernels of a schedule are run: as programs, or as PTX.
struct Ways {
  const program::OnlineTile* tile = nullptr;  // the heuristic's without
  const char* arch = "sm_90";
  bool interpreted = true;
  int64_t spilled_bytes_max = 0;
  bool assembled = false;  // if there is an assembler; always where the tile is of warpgroups
  std::vector<int64_t> vars;  // by slot
};

// The schedule for an NVIDIA GPU, all scores recomputed.
schedule::Schedule Scheduled(Graph& graph, const UOp* sink);
std::vector<codegen::Opt> OptsOf(const program::OnlineTile& tile);
std::vector<HostTensor> RandomParams(const UOp* sink, uint32_t seed);

program::Program ProgramOf(const UOp* ast, const Ways& ways);
// Both check their own success by ASSERT. Adds the instructions that were run to `steps`.
void RunAsProgram(const UOp* ast, const Ways& ways, uint32_t seed, Buffers& buffers,
                  int64_t* steps = nullptr);
// What is assembled has no spilled registers, and products that run on.
void RunAsPtx(const UOp* ast, const Ways& ways, Buffers& buffers);

using RunKernel = std::function<void(const UOp* ast, Buffers& own)>;
// Runs all kernels of a schedule one after the other, those with scores with `run`. Memory is 0xA5
// before. Returns the results.
std::vector<std::string> RunSchedule(const schedule::Schedule& schedule,
                                     std::span<const HostTensor> params, size_t results,
                                     const RunKernel& run);

// Checks results by ASSERT, within the bound of CheckGraph.
void ExpectNear(const Results& want, const std::vector<std::string>& got);

// Checks both ways, within a part of the largest number of the result: weights of bf16 are rounded
// to 2^-9 of themselves, by the interpreter after they are divided and by us before. Of f32 nothing
// is rounded but sums. `kernels`: with scores.
void CheckGraph(const UOp* sink, const Ways& ways, size_t kernels);
void CheckAttention(const AttentionShape& shape, const Ways& ways = {}, size_t kernels = 1);

}  // namespace outboard::test
