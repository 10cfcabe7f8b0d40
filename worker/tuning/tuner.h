// Which Opts a kernel is compiled with: the best that this machine has measured (kernel_store.h),
// and, where BEAM asks for it, what a search finds now (compiler/search). Searches in idle time are
// made by it too (search_main.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/uop.h"
#include "compiler/search/trial.h"
#include "compiler/target.h"
#include "runtime/device.h"
#include "worker/compile/kernel_compiler.h"
#include "worker/tuning/tuning_store.h"

namespace outboard::worker {

struct TunerOptions {
  int width = 0;  // of the search for kernels that had none so wide; 0: nothing is searched
  // A search that takes longer is left; it goes on when the kernel is met again. Less than what a
  // step may take (step_watchdog.h), of which a plan's searches are a part.
  double kernel_seconds_max = 30;
  double plan_seconds_max = 300;
  int64_t memory_bytes_max = int64_t{1} << 30;  // of one kernel's buffers, besides the session's
  bool report = false;                          // a line on stderr for each search
  Target target = HostTarget();                 // what the compiler compiles for
};

// Threads: one, that of the device.
class Tuner {
 public:
  // All three outlive the tuner. `compiler` makes the candidates. Nothing but the tuner uses the
  // device while it searches.
  Tuner(TuningStore* store, KernelCompiler* compiler, runtime::Device* device,
        const TunerOptions& options);

  // The searches of the next kernels count together against plan_seconds_max.
  void BeginPlan() { plan_seconds_ = 0; }

  // The Opts to compile `kernel` with (codegen::OptsToString); `name` is for people. nullopt: those
  // of the heuristic. What cannot be known, for want of a store or of memory, is the heuristic's
  // too.
  std::optional<std::string> OptsFor(const UOp* kernel, const std::string& name);

  // Searches for a kernel that somebody has asked for, to the end, however long it takes; goes on
  // where an earlier search was stopped. One that cannot be searched counts as searched.
  // Errors: those of the store, and UNAVAILABLE where nothing can be compiled
  absl::Status SearchFor(const Demand& demand);

 private:
  // `kernel` has no VARs.
  absl::Status Search(const UOp* kernel, const std::string& name, const TuningKey& key,
                      std::vector<search::Trial> known, double seconds_max);

  TuningStore* store_;
  KernelCompiler* compiler_;
  runtime::Device* device_;
  TunerOptions options_;
  double plan_seconds_ = 0;
};

}  // namespace outboard::worker
