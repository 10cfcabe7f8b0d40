// The compiling engine: graph -> schedule -> kernels -> compiled kernels (an object, PTX or OpenCL
// C) -> launches. Execution plans are cached by graph id and set of donated inputs, independent of
// the bindings of VARs; loaded kernels by kernel id, so that graphs share equal kernels.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "compiler/schedule/attention.h"
#include "compiler/schedule/in_place/policy.h"
#include "worker/compile/kernel_compiler.h"
#include "worker/engine/engine.h"
#include "worker/engine/launch_watch.h"
#include "worker/tuning/tuning_store.h"

namespace outboard::worker {

struct CompiledEngineOptions {
  int debug = 0;                 // DEBUG: 2 a line per kernel, 3 the schedule, 4 the kernels
  TuningStore* store = nullptr;  // measurements of kernels; outlives the engine; may be nullptr
  KernelCompiler* candidates = nullptr;  // compiler for searches; nullptr: the engine's own
  // Compiles better versions of kernels in idle time, and gives up (CANCELLED) when a Run arrives;
  // nullptr: kernels are not replaced.
  KernelCompiler* idle_compiler = nullptr;
  int beam = 0;  // BEAM: search width, for kernels not yet searched at it
  bool beam_cold = false;  // BEAM_COLD: searches time kernels with cold caches
  // After so long such a search of one kernel is suspended, and those of one plan together; none
  // begins where it is 0. nullopt: the limits of TunerOptions (worker/tuning/tuner.h). Tests set
  // it; no flag does.
  std::optional<double> search_seconds_max = {};
  schedule::ScorePolicy scores = schedule::ScorePolicy::kByCost;  // FLASH
  schedule::OverwritePolicy overwrites = schedule::OverwritePolicy::kLarge;
  size_t plans_max = 256;               // kept; the one that was not used for longest goes
  LaunchWatch* launch_watch = nullptr;  // is told what is waited for; nullptr: nobody
};

// Schedules for the target of `compiler`, which is that of `device` (device_target.h). `compiler`
// and all pointers in `options` outlive the engine.
std::unique_ptr<Engine> MakeCompiledEngine(KernelCompiler* compiler,
                                           std::unique_ptr<runtime::Device> device,
                                           const CompiledEngineOptions& options);

}  // namespace outboard::worker
