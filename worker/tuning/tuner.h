// Chooses the Opts that a kernel is compiled with: the best that this machine has measured
// (tuning_store.h) or, if BEAM asks for it, the result of a search now (compiler/search). Also runs
// the searches in idle time (search_main.h).
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compiler/ir/uop.h"
#include "compiler/search/trial.h"
#include "compiler/target.h"
#include "runtime/device.h"
#include "worker/compile/kernel_compiler.h"
#include "worker/engine/launch_watch.h"
#include "worker/process/message_limits.h"
#include "worker/tuning/tuning_store.h"

namespace outboard::worker {

// Beam width in idle time: the number of lists of Opts that each round passes to the next.
inline constexpr int kIdleSearchWidth = 4;

struct TunerOptions {
  int width = 0;  // of searches, for kernels not yet searched so wide; 0: none
  // A search is suspended after this time and continues when the kernel occurs again. Less than the
  // limit of a step (worker/executor/step_watchdog.h), which includes the searches of its plan.
  double kernel_seconds_max = 30;
  double plan_seconds_max = 300;
  int64_t memory_bytes_max = int64_t{1} << 30;  // of one kernel's buffers, on top of the session's
  bool report = false;                          // prints a line on stderr for each search
  Target target = HostTarget();                 // of the compiler
  int batch = kBatchCandidatesMax;              // candidates that are compiled at a time
  bool cold_caches = false;  // as MeasurerOptions; its times are not those of warm ones
  // Is told which candidates are waited for; nullptr: nobody. A candidate of such a device may also
  // end the process: it is in the store as one that does not work before it runs.
  LaunchWatch* watch = nullptr;
};

// Threads: one, that of the device.
class Tuner {
 public:
  // All three outlive the tuner. `compiler` compiles the candidates. During a search only the tuner
  // uses the device.
  Tuner(TuningStore* store, KernelCompiler* compiler, runtime::Device* device,
        const TunerOptions& options);

  // Restarts the time that counts against plan_seconds_max: the searches of the next kernels share
  // it.
  void BeginPlan() { plan_seconds_ = 0; }

  struct Kernel {
    const UOp* kernel;
    std::string name;  // for people
  };
  // Returns the Opts to compile each of the kernels with (codegen::OptsToString), in their order.
  // nullopt: use the heuristic's, also if there is no store or not enough memory to search. What is
  // known of all of them is one question to the store.
  std::vector<std::optional<std::string>> OptsFor(std::span<const Kernel> kernels);

  // Notes that the device does not take the kernel with these Opts, which OptsFor has returned:
  // they are not chosen again.
  void Strike(const Kernel& kernel, const std::string& opts);

  // Searches for a demanded kernel to the end, without a time limit; continues a search that was
  // stopped earlier. A kernel that cannot be searched counts as searched.
  // Errors: those of the store, and UNAVAILABLE if no compiler can be reached
  absl::Status SearchFor(const Demand& demand);

  // The same for a kernel of the session that this process serves, until `stop`. True where nothing
  // is left to find. Errors: those of the search; it is of no use to ask again
  absl::StatusOr<bool> SearchUntil(const UOp* kernel, const std::string& name,
                                   const TuningKey& key, const std::function<bool()>& stop);

 private:
  std::optional<std::string> OptsFor(const Kernel& kernel, const TuningKey& key,
                                     std::optional<Tuning> known);
  // `kernel` has no VARs.
  absl::Status Search(const UOp* kernel, const std::string& name, const TuningKey& key,
                      std::vector<search::Trial> known, double seconds_max,
                      const std::function<bool()>& stop = {});

  TuningStore* store_;
  KernelCompiler* compiler_;
  runtime::Device* device_;
  TunerOptions options_;
  double plan_seconds_ = 0;
  bool says_no_clocks_ = false;  // it was said
};

}  // namespace outboard::worker
