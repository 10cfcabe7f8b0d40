// The execution plans of one rank of a group. All ranks have the same plans, with the same versions
// of kernels, so that their transfers meet and a replay gives the same bits: they agree on each
// plan before one of them executes it, and change versions together.
//
// Threads: that of the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"
#include "runtime/collective/collective.h"
#include "runtime/device.h"
#include "worker/compile/kernel_compiler.h"
#include "worker/engine/engine.h"
#include "worker/engine/plans/execution_plan.h"
#include "worker/engine/plans/kernels_in_use.h"
#include "worker/engine/plans/plan_maker.h"
#include "worker/engine/plans/planned_launches.h"
#include "worker/engine/trace.h"

namespace outboard::worker {

// A Run that wants a plan.
struct PlanWanted {
  const UOp* sink;
  const std::vector<DeviceArrayPtr>& inputs;
  std::span<const Binding> bindings;
  std::span<const int64_t> donated;
};

class GroupPlans {
 public:
  // All outlive this. `plans` are the engine's.
  GroupPlans(KernelCompiler* compiler, const runtime::Device* device, KernelsInUse* kernels,
             PlanMaker* maker, KnownPlans* plans)
      : compiler_(compiler), device_(device), kernels_(kernels), maker_(maker), plans_(plans) {}

  struct Found {
    ExecutionPlan* plan;
    bool is_new;
  };
  // The plan of `wanted`, whose key is `key`. A new one is made by all ranks of `group`, and by
  // none where one cannot begin its first Run. `trace` may be nullptr; `make_room` as
  // Engine::SetMakeRoom has it.
  // Errors, on all ranks: those of PlanMaker::Make, where one rank has one; those of the group
  //   FAILED_PRECONDITION  ranks have made or replay other kernels, as they were asked to
  //   ABORTED              they make other kernels, and nothing simpler is left to try
  absl::StatusOr<Found> PlanFor(collective::Collective& group, const PlanKey& key,
                                const PlanWanted& wanted, ExecutorTrace* trace,
                                const std::function<void()>& make_room);

  // As Engine::Pin. Those in use change at the next PlanFor, on all ranks.
  void Pin(const KernelVersion& version);

 private:
  // What the ranks have made of one graph.
  struct Made {
    std::unique_ptr<ExecutionPlan> plan;      // this rank's
    std::vector<SimplerKernel> made_simpler;  // what it could not make as it was asked for
    std::optional<int64_t> differs;           // the first rank whose kernels are not rank 0's
  };

  void ForgetOlderEpoch(uint64_t epoch);
  // The kernels are those that rank 0 has chosen, or simpler ones.
  // Errors: where one rank has one, on all
  absl::StatusOr<Made> MakeTogether(collective::Collective& group, const PlanWanted& wanted,
                                    ExecutorTrace* trace, const std::function<void()>& make_room);
  absl::Status TakeSimpler(collective::Collective& group, const Made& made, int attempt);
  absl::Status SwitchToPinned(collective::Collective& group);
  absl::Status SwitchToBetter(collective::Collective& group, const ExecutionPlan& plan);

  KernelCompiler* const compiler_;
  const runtime::Device* const device_;
  KernelsInUse* const kernels_;
  PlanMaker* const maker_;
  KnownPlans* const plans_;
  uint64_t epoch_ = 0;           // that the plans are of
  SimplerKernels simpler_;       // as all ranks make them, since one cannot as they were chosen
  std::vector<KernelId> pinned_;  // since the last Run
};

}  // namespace outboard::worker
