// Executes a plan, once: memory for its buffers, its launches and transfers in order, and the
// arrays that are its results.
//
// Threads: that of the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"
#include "runtime/device.h"
#include "worker/engine/engine.h"
#include "worker/engine/launcher.h"
#include "worker/engine/plans/execution_plan.h"
#include "worker/engine/trace.h"
#include "worker/engine/transfers.h"

namespace outboard::worker {

class PlanRun {
 public:
  // The plan is that of `sink`, to which `inputs` and `bindings` fit (CheckInputs). `trace` may be
  // nullptr. `make_room` as Engine::SetMakeRoom has it. All pointers and `bindings` outlive this.
  PlanRun(Engine* engine, Launcher* launcher, ExecutorTrace* trace,
          const std::function<void()>* make_room, ExecutionPlan* plan, const UOp* sink,
          std::vector<DeviceArrayPtr> inputs, std::span<const Binding> bindings)
      : engine_(*engine),
        launcher_(*launcher),
        trace_(trace),
        make_room_(*make_room),
        plan_(*plan),
        sink_(sink),
        inputs_(std::move(inputs)),
        bindings_(bindings) {}

  // Call once. Returns the results when all is launched; Launcher::Wait waits for it. Where a step
  // of a group's plan fails, the group has ended before memory is given back.
  // Errors: as Engine::Execute
  absl::StatusOr<std::vector<DeviceArrayPtr>> Execute();

 private:
  // What is allocated, and where each buffer of the schedule lies.
  absl::Status Prepare();
  absl::Status MakeOutputs(std::vector<std::vector<int64_t>> dims_of);
  // An array for a result: in the memory of the input that it is written over, or, where somebody
  // else holds that one, in a copy of it.
  absl::StatusOr<std::shared_ptr<DeviceArray>> NewOutput(DType dtype, std::vector<int64_t> dims,
                                                         int over);
  absl::Status MakeArena();
  // `inputs`: addresses, also of those that have become results.
  absl::Status PlaceBuffers(const std::vector<runtime::DeviceAddress>& inputs);
  // Memory for a buffer whose dimensions are of VARs; an input is copied there.
  absl::StatusOr<runtime::DeviceAddress> PlacePadded(const schedule::ScheduledBuffer& buffer);
  void SetVars();

  absl::Status LaunchTogether();
  absl::Status ExecuteSteps();
  absl::Status ExecuteStep(const schedule::ScheduledStep& step, Transfers& transfers);
  absl::Status CopyPaddedOutputs();

  runtime::Device& device() const { return engine_.device(); }

  Engine& engine_;
  Launcher& launcher_;
  ExecutorTrace* const trace_;
  const std::function<void()>& make_room_;
  ExecutionPlan& plan_;
  const UOp* const sink_;
  std::vector<DeviceArrayPtr> inputs_;
  const std::span<const Binding> bindings_;
  std::vector<std::shared_ptr<DeviceArray>> outputs_;
  std::optional<runtime::DeviceBuffer> arena_;  // the temporaries
  std::vector<runtime::DeviceBuffer> padded_;   // inputs and outputs with dimensions of VARs
  LaunchArguments arguments_;
};

}  // namespace outboard::worker
