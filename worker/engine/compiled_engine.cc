#include "worker/engine/compiled_engine.h"

#include <chrono>

#include "base/check.h"
#include "worker/engine/idle_search.h"
#include "worker/engine/launcher.h"
#include "worker/engine/plan_run.h"
#include "worker/engine/plans/execution_plan.h"
#include "worker/engine/plans/group_plans.h"
#include "worker/engine/plans/kernels_in_use.h"
#include "worker/engine/plans/plan_maker.h"
#include "worker/engine/repeat.h"

namespace outboard::worker {
namespace {

class CompiledEngine final : public Engine {
 public:
  CompiledEngine(KernelCompiler* compiler, std::unique_ptr<runtime::Device> device,
                 const CompiledEngineOptions& options)
      : Engine(std::move(device)),
        compiler_(compiler),
        launcher_(&this->device(), options.launch_watch, options.debug, &stats_),
        kernels_(&this->device(), options.store, options.idle_compiler,
                 compiler->target().Fingerprint()),
        maker_(compiler, &this->device(), options, &kernels_),
        plans_(options.plans_max),
        group_plans_(compiler, &this->device(), &kernels_, &maker_, &plans_),
        idle_search_(options, &this->device(), compiler->target()) {}

  std::string kind() const override { return device().properties().kind; }

  absl::StatusOr<std::vector<DeviceArrayPtr>> Execute(const GraphId& id, const UOp* sink,
                                                      std::vector<DeviceArrayPtr> inputs,
                                                      std::span<const Binding> bindings,
                                                      std::span<const int64_t> donated) override {
    OB_ASSIGN_OR_RETURN(const std::vector<Binding> bound, WithRank(bindings));
    OB_RETURN_IF_ERROR(CheckInputs(sink, inputs, bound));
    OB_ASSIGN_OR_RETURN(ExecutionPlan* const plan, PlanFor(id, {sink, inputs, bound, donated}));
    return Finish(RunPlan(plan, sink, std::move(inputs), bound));
  }

  // Checked, and the plan looked up, once for all repetitions.
  absl::StatusOr<std::vector<DeviceArrayPtr>> ExecuteRepeated(
      const GraphId& id, const UOp* sink, std::vector<DeviceArrayPtr> inputs,
      std::span<const Binding> bindings, const Repeat& repeat,
      const std::function<void()>& on_repetition) override {
    OB_ASSIGN_OR_RETURN(const std::vector<Binding> all, WithRank(bindings));
    OB_RETURN_IF_ERROR(CheckInputs(sink, inputs, all));
    OB_RETURN_IF_ERROR(CheckRepeat(sink, all, repeat));
    OB_ASSIGN_OR_RETURN(ExecutionPlan* const plan,
                        PlanFor(id, {sink, inputs, all, repeat.CarriedInputs()}));
    return Finish(ExecuteAll(
        *this, sink, std::move(inputs), all, repeat,
        [&](std::vector<DeviceArrayPtr> now, std::span<const Binding> bound) {
          return RunPlan(plan, sink, std::move(now), bound);
        },
        on_repetition));
  }

  std::vector<KernelVersion> TakeVersions() override { return kernels_.TakeVersions(); }
  void Pin(const KernelVersion& version) override {
    if (group() == nullptr) return kernels_.Pin(version, compiler_);
    group_plans_.Pin(version);
  }
  void TellCosts(const std::function<bool()>& preempted) override { kernels_.TellCosts(preempted); }
  void UseBetterKernels(const std::function<bool()>& preempted) override {
    kernels_.UseBetter(preempted);
  }
  void SearchForBetterKernels(const std::function<bool()>& preempted) override {
    if (!launcher_.has_queued()) idle_search_.Search(kernels_, preempted);
  }

 private:
  // The plan that was made for an earlier Run of the graph, or a new one.
  absl::StatusOr<ExecutionPlan*> PlanFor(const GraphId& id, const PlanWanted& wanted) {
    const PlanKey key(id, wanted.donated);
    if (group() != nullptr) return AgreedPlanFor(key, wanted);
    if (ExecutionPlan* const known = plans_.Find(key); known != nullptr) return known;
    OB_ASSIGN_OR_RETURN(
        std::unique_ptr<ExecutionPlan> plan,
        maker_.Make(
            {.sink = wanted.sink, .donated = wanted.donated, .tuned = true, .trace = trace_}));
    ++stats_.plans_made;
    return plans_.Add(key, std::move(plan));
  }

  absl::StatusOr<ExecutionPlan*> AgreedPlanFor(const PlanKey& key, const PlanWanted& wanted) {
    OB_ASSIGN_OR_RETURN(const GroupPlans::Found found,
                        group_plans_.PlanFor(*group(), key, wanted, trace_, make_room_));
    if (found.is_new) ++stats_.plans_made;
    return found.plan;
  }

  // Requires inputs and bindings that fit.
  absl::StatusOr<std::vector<DeviceArrayPtr>> RunPlan(ExecutionPlan* plan, const UOp* sink,
                                                      std::vector<DeviceArrayPtr> inputs,
                                                      std::span<const Binding> bindings) {
    return PlanRun(this, &launcher_, trace_, &make_room_, plan, sink, std::move(inputs), bindings)
        .Execute();
  }

  // Waits for the kernels of a Run, so that a failure of the device is this Run's, and the time
  // its.
  absl::StatusOr<std::vector<DeviceArrayPtr>> Finish(
      absl::StatusOr<std::vector<DeviceArrayPtr>> results) {
    if (results.ok()) {
      const auto start = std::chrono::steady_clock::now();
      const absl::Status status = launcher_.Wait();
      launcher_.AddDeviceTime(start);
      if (!status.ok()) results = status;
    }
    OB_RETURN_IF_ERROR(EndGroupIfFailed(results.status()));
    return results;
  }

  KernelCompiler* const compiler_;
  Launcher launcher_;
  KernelsInUse kernels_;
  PlanMaker maker_;
  KnownPlans plans_;
  GroupPlans group_plans_;  // in a group
  IdleSearch idle_search_;
};

}  // namespace

std::unique_ptr<Engine> MakeCompiledEngine(KernelCompiler* compiler,
                                           std::unique_ptr<runtime::Device> device,
                                           const CompiledEngineOptions& options) {
  return std::make_unique<CompiledEngine>(compiler, std::move(device), options);
}

}  // namespace outboard::worker
