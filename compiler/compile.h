// Compiles kernels to x86-64 objects, to PTX for NVIDIA's GPUs, to objects for AMD's, or to source
// text for devices that compile it themselves.
//
// A kernel is a SINK of STOREs over common output ranges (op.h, "kernel level"). A REDUCE_LOOP may
// contain others. An inner one that does not depend on the outer one's ranges is computed once,
// before it; otherwise it is recomputed in each iteration, unless a PANEL stores its values
// (optimize/operands/panel.h). A load that is not proved to be in range (compiler/proof) gets a
// gate; a store that is not proved in range is refused.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/compiled_kernel.h"
#include "compiler/ir/uop.h"
#include "compiler/optimize/opt.h"
#include "compiler/target.h"

namespace outboard {

struct CompileOptions {
  std::string cpu;       // an LLVM processor name, instead of `target`; empty: `target`
  std::string features;  // LLVM's "+a,-b" form; used where `cpu` is given
  // Where its kind is kOpenCl, the result is source text (CompiledKernel::Form::kOpenClC), which
  // the device compiles itself, and no Opts are supported yet; where it is kCuda, PTX
  // (Form::kPtx); where it is kAmd, an object that no device loads (Form::kElfAmdgpu).
  Target target = HostTarget();
  // Without Opts, and on processors without LLVM's passes, too: NOOPT=1. See `opts`.
  bool no_opt = false;
  bool dump = false;    // print plan, program and LLVM IR or text to stderr (DEBUG >= 5)
  // What is applied, and what becomes of a list that does not fit:
  //   nullopt             the heuristic's choice, or a tile of matrix units; if it does not fit,
  //                       plainer ones (CompiledKernel::given_up names it)
  //   nullopt, no_opt     nothing: plain loops, on GPUs one value a thread
  //   a list              that list; if it does not fit, an error. The empty list is plain loops
  // Plain loops whose threads are not proved to store within their buffers have blocks of the last
  // range's points, or of one thread (given_up names it).
  std::optional<std::vector<codegen::Opt>> opts = std::nullopt;
  // Blocks along a grid's first axis, beyond which GPUs' grids have rows; nullopt: what devices
  // have. Tests divide grids of fewer.
  std::optional<int64_t> grid_columns_max = std::nullopt;
};

// Errors: INVALID_ARGUMENT    not a kernel; the message names node and rule. Or an Opt that is not
//                             legal for it; the message names the Opt. Or a processor that LLVM
//                             does not know, or that lacks features which the target claims
//         UNIMPLEMENTED       an operation that is not implemented for its type
//         RESOURCE_EXHAUSTED  over a limit of compiler/optimize/limits.h
// Deterministic: equal kernels and options give equal bytes, in any process. Threads: pure.
absl::StatusOr<CompiledKernel> CompileKernel(const UOp* sink, const CompileOptions& options = {});

// Compiles one kernel after another as CompileKernel does, with one code generator: making LLVM's
// costs about as much as compiling a small kernel; that of PTX nothing. Threads: one.
class Compiler {
 public:
  explicit Compiler(CompileOptions options = {});
  ~Compiler();
  // `opts` take the place of the options'.
  absl::StatusOr<CompiledKernel> Compile(const UOp* sink,
                                         std::optional<std::vector<codegen::Opt>> opts);
  absl::StatusOr<CompiledKernel> Compile(const UOp* sink);

 private:
  struct Generator;
  CompileOptions options_;
  std::unique_ptr<Generator> generator_;
};

// Returns the target that these options select. Errors: INVALID_ARGUMENT, no such processor.
absl::StatusOr<Target> TargetOf(const CompileOptions& options = {});

// Returns the LLVM IR generated for a kernel, before LLVM's passes; for people and tests.
absl::StatusOr<std::string> KernelToLlvmIr(const UOp* sink, const CompileOptions& options = {});

// Does the one-time initialisation of LLVM that would otherwise delay the first compilation (about
// 20 ms). PTX needs none.
void WarmUpCompiler();

}  // namespace outboard
