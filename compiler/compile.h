// Kernels to x86-64 objects.
//
// A kernel is a SINK of STOREs over common output ranges (op.h, "kernel level"). A REDUCE_LOOP may
// hold others; one that does not depend on the outer one's ranges is computed before it, else again
// in each of its steps, unless a PANEL keeps its values (panel.h). A load that is not shown to be
// in range (compiler/proof) gets a gate; a store that is not is refused.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/compiled_kernel.h"
#include "compiler/ir/uop.h"
#include "compiler/optimize/opt.h"
#include "compiler/target.h"
#include "compiler/render/opencl_c.h"

namespace outboard {

struct CompileOptions {
  std::string cpu;       // an LLVM processor name, instead of `target`; empty: `target`
  std::string features;  // LLVM's "+a,-b" form; used where `cpu` is given
  Target target = HostTarget();
  bool no_opt = false;  // plain scalar loops, one element at a time
  bool dump = false;    // print the plan and the LLVM IR to stderr (DEBUG >= 5)
  // Set: text for this device, which compiles it itself (CompiledKernel::Form::kOpenClC), through
  // program/; `cpu` and `features` are not read, and Opts have no form there yet.
  std::optional<render::OpenClDevice> opencl = std::nullopt;
  // Instead of those that the heuristic chooses.
  std::optional<std::vector<codegen::Opt>> opts = std::nullopt;
};

// Errors: INVALID_ARGUMENT    not a kernel; the message names node and rule. Or an Opt that is not
//                             legal for it; the message names the Opt. Or a target that LLVM does
//                             not know, or that has less than the target says
//         UNIMPLEMENTED       an operation that has no code for its type
//         RESOURCE_EXHAUSTED  over a limit of compiler/optimize/limits.h
// Deterministic: equal kernels and options give equal bytes, in any process. Threads: pure.
absl::StatusOr<CompiledKernel> CompileKernel(const UOp* sink, const CompileOptions& options = {});

// The same for several at less cost each; results in the order of `sinks`. `opts`, unless empty,
// has what options.opts is, for each of them.
std::vector<absl::StatusOr<CompiledKernel>> CompileKernels(
    std::span<const UOp* const> sinks, const CompileOptions& options = {},
    std::span<const std::optional<std::vector<codegen::Opt>>> opts = {});

// What is compiled for under these options. Errors: INVALID_ARGUMENT, no such processor.
absl::StatusOr<Target> TargetOf(const CompileOptions& options = {});

// The LLVM IR that is written for a kernel, before LLVM's passes; for people and tests.
absl::StatusOr<std::string> KernelToLlvmIr(const UOp* sink, const CompileOptions& options = {});

// Loads and initialises what the first compilation would otherwise wait for (about 20 ms).
void WarmUpCompiler();

}  // namespace outboard
