// From a graph to an execution plan: its schedule, its kernels compiled for the device and loaded,
// and the launches in order.
//
// Threads: that of the engine.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/schedule/schedule.h"
#include "compiler/target.h"
#include "runtime/device.h"
#include "worker/compile/kernel_compiler.h"
#include "worker/compile/kernel_id.h"
#include "worker/engine/compiled_engine.h"
#include "worker/engine/plans/execution_plan.h"
#include "worker/engine/plans/kernels_in_use.h"
#include "worker/engine/plans/planned_launches.h"
#include "worker/engine/trace.h"
#include "worker/tuning/tuner.h"

namespace outboard::worker {

struct PlanRequest {
  const UOp* sink;
  std::span<const int64_t> donated;  // inputs that results are written over
  // Whether kernels that nobody has pinned get the store's Opts, or are searched for.
  bool tuned;
  ExecutorTrace* trace;  // or nullptr
  // In a group, whose ranks would look into the store at different times: is told what this rank
  // would choose, and returns what all choose. A kernel that is not among it gets what the compiler
  // chooses. Called for each list of kernels to compile.
  using Share = std::function<absl::StatusOr<std::vector<KernelVersion>>(
      const std::vector<KernelVersion>& mine)>;
  Share share = nullptr;
  // In a group: kernels that are made simpler from the beginning, also those that are pinned, and
  // those that this device takes only simpler than they were asked for.
  const SimplerKernels* simpler = nullptr;
  std::vector<SimplerKernel>* made_simpler = nullptr;

  std::optional<Simpler> SimplerOf(const KernelId& kernel) const {
    if (simpler == nullptr) return std::nullopt;
    const auto found = simpler->find(kernel);
    return found == simpler->end() ? std::nullopt : std::optional(found->second);
  }
};

class PlanMaker {
 public:
  // All pointers, those of `options` included, outlive the maker. Adds to `kernels` what it loads.
  PlanMaker(KernelCompiler* compiler, runtime::Device* device,
            const CompiledEngineOptions& options, KernelsInUse* kernels);

  // Errors: those of the compiler and the device, about the result that needs the kernel:
  //   RESOURCE_EXHAUSTED  a limit of either
  //   UNIMPLEMENTED       what the compiler does not know
  absl::StatusOr<std::unique_ptr<ExecutionPlan>> Make(const PlanRequest& request);

 private:
  using Kernels = absl::flat_hash_map<KernelId, std::shared_ptr<KernelInUse>>;

  struct MissingKernel {
    size_t wanted;  // its place in the list of those that the plan wants
    const UOp* ast;
    std::string name;
    bool is_tuned = false;  // its Opts are the tuner's
  };
  // Kernels that are not loaded yet, each once. Both lists are in one order.
  struct Missing {
    std::vector<KernelSource> sources;
    std::vector<MissingKernel> kernels;
  };
  class NewKernels;

  // Sets the ids of `wanted` and adds their kernels. Kernels of other plans are used again; those
  // of this plan are held by it alone, so that they go with it. One in several copies may be
  // refused, since fewer can be launched. Returns how many were compiled.
  absl::StatusOr<size_t> MakeKernels(const PlanRequest& request, Graph& graph,
                                     const schedule::Schedule& schedule,
                                     const std::vector<int>& results,
                                     std::vector<WantedKernel>& wanted, Kernels& kernels);
  // Sets the ids of `wanted` and adds what other plans have loaded; returns the rest.
  absl::StatusOr<Missing> FindMissing(const PlanRequest& request, Graph& graph,
                                      const schedule::Schedule& schedule,
                                      std::vector<WantedKernel>& wanted, Kernels& kernels);
  void ChooseOpts(const PlanRequest& request, const std::vector<WantedKernel>& wanted,
                  Missing& missing);
  absl::Status TakeShared(const PlanRequest& request, const std::vector<WantedKernel>& wanted,
                          Missing& missing) const;
  // Where the device has refused the code of a kernel: loads other code of it, with simpler Opts,
  // which `source` then has.
  void LoadSimpler(const MissingKernel& kernel, KernelSource& source,
                   runtime::LoadedKernel& loaded);
  // Where one with Opts cannot be compiled, without them; `sources` then says so.
  std::vector<absl::StatusOr<CompiledKernel>> Compile(std::vector<KernelSource>& sources);
  schedule::ScheduleOptions ScheduleOptionsOf() const;

  KernelCompiler* const compiler_;
  runtime::Device* const device_;
  const int debug_;
  const schedule::ScorePolicy scores_;
  const schedule::OverwritePolicy overwrites_;
  const Target target_;
  std::optional<Tuner> tuner_;
  KernelsInUse* const kernels_;
};

}  // namespace outboard::worker
