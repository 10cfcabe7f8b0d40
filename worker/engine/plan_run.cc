#include "worker/engine/plan_run.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/failed_node.h"
#include "compiler/ir/limits.h"
#include "compiler/schedule/schedule.h"
#include "worker/engine/memory_need.h"
#include "worker/engine/plans/planned_launches.h"

namespace outboard::worker {

using BufferKind = schedule::ScheduledBuffer::Kind;

absl::StatusOr<std::vector<DeviceArrayPtr>> PlanRun::Execute() {
  OB_RETURN_IF_ERROR(Prepare());
  const auto start = std::chrono::steady_clock::now();
  if (launcher_.LaunchesTogether(plan_, trace_)) {
    OB_RETURN_IF_ERROR(LaunchTogether());
  } else {
    OB_RETURN_IF_ERROR(ExecuteSteps());
  }
  OB_RETURN_IF_ERROR(CopyPaddedOutputs());
  launcher_.AddDeviceTime(start);
  launcher_.AddExecution(plan_);
  return std::vector<DeviceArrayPtr>(outputs_.begin(), outputs_.end());
}

// ---- memory -------------------------------------------------------------------------------------

absl::Status PlanRun::Prepare() {
  const uint64_t begin_ns = trace_ != nullptr ? trace_->Now() : 0;
  std::vector<runtime::DeviceAddress> inputs;
  inputs.reserve(inputs_.size());
  for (const DeviceArrayPtr& input : inputs_) inputs.push_back(input->address());
  OB_ASSIGN_OR_RETURN(std::vector<std::vector<int64_t>> dims_of, ResultDims(sink_, bindings_));
  OB_RETURN_IF_ERROR(CheckRoom(plan_, sink_, dims_of, inputs_, device(), make_room_));
  OB_RETURN_IF_ERROR(MakeOutputs(std::move(dims_of)));
  OB_RETURN_IF_ERROR(MakeArena());
  OB_RETURN_IF_ERROR(PlaceBuffers(inputs));
  SetVars();
  if (trace_ != nullptr) trace_->Add("prepare", begin_ns);
  return absl::OkStatus();
}

absl::Status PlanRun::MakeOutputs(std::vector<std::vector<int64_t>> dims_of) {
  for (size_t i = 0; i < sink_->src.size(); ++i) {
    absl::StatusOr<std::shared_ptr<DeviceArray>> array =
        NewOutput(sink_->src[i]->dtype, std::move(dims_of[i]), plan_.schedule.over[i]);
    if (!array.ok()) return AboutNode(array.status(), sink_, sink_->src[i]);
    outputs_.push_back(*std::move(array));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<DeviceArray>> PlanRun::NewOutput(DType dtype,
                                                                std::vector<int64_t> dims,
                                                                int over) {
  if (IsOverwritten(inputs_, over)) {
    // Made by NewArray: the const is the pointer's alone.
    DeviceArray& given = const_cast<DeviceArray&>(*inputs_[over]);
    return std::make_shared<DeviceArray>(
        DeviceArray{dtype, std::move(dims), std::move(given.buffer)});
  }
  OB_ASSIGN_OR_RETURN(std::shared_ptr<DeviceArray> array, engine_.NewArray(dtype, std::move(dims)));
  if (over != schedule::kNoInput)
    OB_RETURN_IF_ERROR(
        device().Copy(array->address(), inputs_[over]->address(), inputs_[over]->bytes()));
  return array;
}

absl::Status PlanRun::MakeArena() {
  absl::StatusOr<runtime::DeviceBuffer> arena = device().Allocate(plan_.schedule.arena_bytes);
  if (!arena.ok()) {
    const absl::Status status(
        arena.status().code(),
        absl::StrCat("the step's temporary values together: ", arena.status().message()));
    return AboutResult(status, sink_, plan_.largest_temporary);
  }
  arena_.emplace(*std::move(arena));
  return absl::OkStatus();
}

absl::Status PlanRun::PlaceBuffers(const std::vector<runtime::DeviceAddress>& inputs) {
  std::vector<runtime::DeviceAddress>& memory = arguments_.memory;
  memory.reserve(plan_.schedule.buffers.size());
  for (const schedule::ScheduledBuffer& buffer : plan_.schedule.buffers) {
    if (!buffer.padded_dims.empty()) {
      OB_ASSIGN_OR_RETURN(const runtime::DeviceAddress padded, PlacePadded(buffer));
      memory.push_back(padded);
      continue;
    }
    switch (buffer.kind) {
      case BufferKind::kInput: memory.push_back(inputs[buffer.index]); break;
      case BufferKind::kOutput: memory.push_back(outputs_[buffer.index]->address()); break;
      case BufferKind::kTemporary: memory.push_back(arena_->address() + buffer.index); break;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<runtime::DeviceAddress> PlanRun::PlacePadded(
    const schedule::ScheduledBuffer& buffer) {
  OB_ASSIGN_OR_RETURN(runtime::DeviceBuffer copy, device().Allocate(buffer.bytes()));
  const runtime::DeviceAddress address = padded_.emplace_back(std::move(copy)).address();
  if (buffer.kind == BufferKind::kInput) {
    const DeviceArray& input = *inputs_[buffer.index];
    OB_RETURN_IF_ERROR(device().CopyBox(address, buffer.padded_dims, input.address(), input.dims,
                                        input.dims, ByteWidth(buffer.dtype)));
  }
  return address;
}

void PlanRun::SetVars() {
  if (bindings_.empty()) return;
  arguments_.vars.resize(limits::kRankSlot + 1);
  for (const Binding& binding : bindings_)
    if (binding.slot >= 0 && binding.slot <= limits::kRankSlot)
      arguments_.vars[binding.slot] = binding.value;
}

absl::Status PlanRun::CopyPaddedOutputs() {
  for (size_t i = 0; i < plan_.schedule.buffers.size(); ++i) {
    const schedule::ScheduledBuffer& buffer = plan_.schedule.buffers[i];
    if (buffer.padded_dims.empty() || buffer.kind != BufferKind::kOutput) continue;
    const DeviceArray& output = *outputs_[buffer.index];
    OB_RETURN_IF_ERROR(device().CopyBox(output.address(), output.dims, arguments_.memory[i],
                                        buffer.padded_dims, output.dims, ByteWidth(buffer.dtype)));
  }
  return absl::OkStatus();
}

// ---- steps --------------------------------------------------------------------------------------

absl::Status PlanRun::LaunchTogether() {
  const absl::Status status = launcher_.LaunchAll(plan_, arguments_);
  if (status.ok()) return status;
  const std::optional<size_t> at = runtime::LaunchOf(status);
  return AboutResult(status, sink_,
                     at && *at < plan_.launches.size() ? plan_.launches[*at].result : kNoResult);
}

// After an error no other rank touches this one's memory.
absl::Status PlanRun::ExecuteSteps() {
  Transfers transfers(engine_.group(), &device(), &plan_.schedule, &arguments_.memory);
  for (const schedule::ScheduledStep& step : plan_.schedule.steps)
    OB_RETURN_IF_ERROR(engine_.EndGroupIfFailed(ExecuteStep(step, transfers)));
  return absl::OkStatus();
}

absl::Status PlanRun::ExecuteStep(const schedule::ScheduledStep& step, Transfers& transfers) {
  switch (step.kind) {
    case schedule::ScheduledStep::Kind::kKernel:
      return AboutResult(launcher_.LaunchOne(plan_, step.index, arguments_, trace_), sink_,
                         plan_.launches[step.index].result);
    case schedule::ScheduledStep::Kind::kStart:
      if (launcher_.has_queued()) OB_RETURN_IF_ERROR(launcher_.Wait());
      return transfers.Start(step.index);
    case schedule::ScheduledStep::Kind::kWait: break;
  }
  const TraceSpan span(trace_, "wait for ranks");
  return transfers.Wait(step.index);
}

}  // namespace outboard::worker
