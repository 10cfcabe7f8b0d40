// The engine that compiles: graph -> schedule -> kernels -> objects -> calls. A graph's plan is
// kept under its id and which of its inputs are donated, whatever its VARs are bound to; a kernel's
// loaded object under the kernel's own id, so that graphs share what they have in common.
#pragma once

#include <memory>

#include "compiler/target.h"
#include "worker/compile/kernel_compiler.h"
#include "worker/engine/engine.h"
#include "worker/tuning/tuning_store.h"

namespace outboard::worker {

struct CompiledEngineOptions {
  int debug = 0;                 // DEBUG: 2 a line a kernel, 3 the schedule, 4 the kernels
  TuningStore* store = nullptr;  // what was measured of kernels; outlives the engine; may be none
  KernelCompiler* candidates = nullptr;  // compiles those of searches; nullptr: the engine's own
  // Compiles what is switched in in idle time, and gives up (CANCELLED) when somebody waits;
  // nullptr: nothing is switched in.
  KernelCompiler* idle_compiler = nullptr;
  int beam = 0;                  // BEAM: width of the search for kernels that had none so wide
  bool flash = false;            // FLASH: as schedule::ScheduleOptions says
  Target target = HostTarget();  // what `compiler` compiles for
};

// `compiler`, and what the options name, outlive the engine.
std::unique_ptr<Engine> MakeCompiledEngine(KernelCompiler* compiler,
                                           std::unique_ptr<runtime::Device> device,
                                           const CompiledEngineOptions& options);

}  // namespace outboard::worker
