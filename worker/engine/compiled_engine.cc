#include "worker/engine/compiled_engine.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/failed_node.h"
#include "compiler/ir/limits.h"
#include "compiler/rewrite/bind.h"
#include "compiler/schedule/schedule.h"
#include "telemetry/counters.h"
#include "telemetry/log.h"
#include "worker/engine/execution_plan.h"
#include "worker/engine/idle_search.h"
#include "worker/engine/kernels_in_use.h"
#include "worker/engine/memory_need.h"
#include "worker/engine/plan_maker.h"
#include "worker/engine/planned_launches.h"
#include "worker/engine/repeat.h"
#include "worker/engine/transfers.h"

namespace outboard::worker {
namespace {

using Clock = std::chrono::steady_clock;

// How often the ranks of a group plan one graph. A kernel is chosen, then simpler in three steps;
// those of a launch that is taken apart in two more.
constexpr int kPlanAttemptsMax = 8;

class CompiledEngine final : public Engine {
 public:
  CompiledEngine(KernelCompiler* compiler, std::unique_ptr<runtime::Device> device,
                 const CompiledEngineOptions& options)
      : Engine(std::move(device)),
        compiler_(compiler),
        debug_(options.debug),
        watch_(options.launch_watch),
        kernels_(&this->device(), options.store, options.idle_compiler,
                 compiler->target().Fingerprint()),
        maker_(compiler, &this->device(), options, &kernels_),
        idle_search_(options, &this->device(), compiler->target()),
        plans_(options.plans_max) {}

  std::string kind() const override { return device().properties().kind; }

  std::vector<KernelVersion> TakeVersions() override { return kernels_.TakeVersions(); }
  void Pin(const KernelVersion& version) override {
    if (group() == nullptr) return kernels_.Pin(version, compiler_);
    kernels_.PinForPlans(version);
    pinned_.push_back(version.kernel);  // those in use change at the next Run, on all ranks
  }
  void TellCosts(const std::function<bool()>& preempted) override { kernels_.TellCosts(preempted); }
  void UseBetterKernels(const std::function<bool()>& preempted) override {
    kernels_.UseBetter(preempted);
  }
  void SearchForBetterKernels(const std::function<bool()>& preempted) override {
    if (queued_ == 0) idle_search_.Run(kernels_, preempted);
  }

  absl::StatusOr<std::vector<DeviceArrayPtr>> Run(const GraphId& id, const UOp* sink,
                                                  std::vector<DeviceArrayPtr> inputs,
                                                  std::span<const Binding> bindings,
                                                  std::span<const int64_t> donated) override {
    OB_ASSIGN_OR_RETURN(const std::vector<Binding> bound, WithRank(bindings));
    OB_RETURN_IF_ERROR(CheckInputs(sink, inputs, bound));
    OB_ASSIGN_OR_RETURN(ExecutionPlan * plan, AgreedPlan(id, sink, inputs, bound, donated));
    absl::StatusOr<std::vector<DeviceArrayPtr>> results =
        RunPlan(*plan, sink, std::move(inputs), bound);
    if (results.ok()) results = AfterFinish(*std::move(results));
    OB_RETURN_IF_ERROR(EndGroupIfFailed(results.status()));
    return results;
  }

  // Checked, and the plan looked up, once for all repetitions.
  absl::StatusOr<std::vector<DeviceArrayPtr>> RunRepeated(
      const GraphId& id, const UOp* sink, std::vector<DeviceArrayPtr> inputs,
      std::span<const Binding> bindings, const Repeat& repeat,
      const std::function<void()>& on_repetition) override {
    OB_ASSIGN_OR_RETURN(const std::vector<Binding> all, WithRank(bindings));
    OB_RETURN_IF_ERROR(CheckInputs(sink, inputs, all));
    OB_RETURN_IF_ERROR(CheckRepeat(sink, all, repeat));
    OB_ASSIGN_OR_RETURN(ExecutionPlan * plan,
                        AgreedPlan(id, sink, inputs, all, repeat.CarriedInputs()));
    absl::StatusOr<std::vector<DeviceArrayPtr>> results = RunAll(
        *this, sink, std::move(inputs), all, repeat,
        [&](std::vector<DeviceArrayPtr> now, std::span<const Binding> bound) {
          return RunPlan(*plan, sink, std::move(now), bound);
        },
        on_repetition);
    if (results.ok()) results = AfterFinish(*std::move(results));
    OB_RETURN_IF_ERROR(EndGroupIfFailed(results.status()));
    return results;
  }

 private:
  // Waits for the kernels of a Run, so that a failure of the device is this Run's, and the time
  // its.
  absl::Status Finish() {
    const Clock::time_point start = Clock::now();
    const absl::Status status = WaitForQueued();
    AddDeviceTime(start);
    return status;
  }

  absl::StatusOr<std::vector<DeviceArrayPtr>> AfterFinish(std::vector<DeviceArrayPtr> results) {
    OB_RETURN_IF_ERROR(Finish());
    return results;
  }

  // As PlanFor. In a group the first Run of a plan is one that all ranks can begin, with the same
  // kernels.
  absl::StatusOr<ExecutionPlan*> AgreedPlan(const GraphId& id, const UOp* sink,
                                            const std::vector<DeviceArrayPtr>& inputs,
                                            std::span<const Binding> bindings,
                                            std::span<const int64_t> donated) {
    if (group() == nullptr) return PlanFor(id, sink, donated);
    // A rank may have been within a Run when the last epoch ended, and another behind it.
    if (const uint64_t epoch = group()->member().epoch; std::exchange(epoch_, epoch) != epoch) {
      plans_.Clear();
      simpler_.clear();
      pinned_.clear();  // no kernel is in use, and plans take what is pinned
    }
    if (!pinned_.empty()) OB_RETURN_IF_ERROR(SwitchToPinned());
    const PlanKey key(id, donated);
    if (ExecutionPlan* const plan = plans_.Find(key); plan != nullptr) {
      if (IsTurnOfKernels(++plan->runs)) OB_RETURN_IF_ERROR(SwitchTogether(*plan));
      return plan;
    }
    for (int attempt = 1;; ++attempt) {
      std::vector<SimplerKernel> made_simpler;
      OB_ASSIGN_OR_RETURN(PlanOfRanks made,
                          PlanTogether(sink, inputs, bindings, donated, made_simpler));
      // Not before all ranks have it: it takes the place of another one.
      if (!made.differs) return Add(key, std::move(made.plan));
      OB_RETURN_IF_ERROR(TakeSimpler(*made.differs, made_simpler, attempt));
    }
  }

  // After `rank` has made other kernels than rank 0: notes those that a rank could not make as they
  // were asked for. Errors, equal on all ranks:
  //   FAILED_PRECONDITION  each has made what it was asked for
  //   ABORTED              they have tried kPlanAttemptsMax times, or nothing simpler is left
  absl::Status TakeSimpler(int64_t rank, std::span<const SimplerKernel> made_simpler,
                           int attempt) {
    OB_ASSIGN_OR_RETURN(const std::vector<SimplerKernel> told,
                        ShareSimpler(*group(), made_simpler));
    const std::string different =
        absl::StrCat("rank ", rank, " made other kernels of this graph than rank 0");
    if (told.empty())
      return absl::FailedPreconditionError(absl::StrCat(
          different, ", and none was refused: their workers have different builds or devices"));
    bool is_simpler = false;
    for (const SimplerKernel& one : told) {
      const auto [known, is_new] = simpler_.try_emplace(one.kernel, one.how);
      is_simpler |= is_new || known->second < one.how;
      known->second = std::max(known->second, one.how);
    }
    if (is_simpler && attempt < kPlanAttemptsMax) return absl::OkStatus();
    return absl::AbortedError(absl::StrCat(different, ", after ", attempt,
                                           attempt == 1 ? " attempt" : " attempts"));
  }

  struct PlanOfRanks {
    std::unique_ptr<ExecutionPlan> plan;
    std::optional<int64_t> differs;  // the first rank that has made other kernels than rank 0
  };
  // The kernels are those that rank 0 has chosen, or simpler ones. Adds to `made_simpler` what this
  // rank could not make as it was asked for. Errors: where one rank has one, on all
  absl::StatusOr<PlanOfRanks> PlanTogether(
      const UOp* sink, const std::vector<DeviceArrayPtr>& inputs,
      std::span<const Binding> bindings, std::span<const int64_t> donated,
      std::vector<SimplerKernel>& made_simpler) {
    bool is_shared = false;  // once: ranks may have several lists, and not the same number of them
    const auto share = [&](const std::vector<KernelVersion>& mine)
        -> absl::StatusOr<std::vector<KernelVersion>> {
      if (std::exchange(is_shared, true)) return std::vector<KernelVersion>();
      return ShareVersions(*group(), mine);
    };
    const auto try_it = [&]() -> absl::StatusOr<std::unique_ptr<ExecutionPlan>> {
      OB_ASSIGN_OR_RETURN(std::unique_ptr<ExecutionPlan> plan,
                          maker_.Make({.sink = sink,
                                       .donated = donated,
                                       .tuned = group()->member().rank == 0,
                                       .trace = trace_,
                                       .share = share,
                                       .simpler = &simpler_,
                                       .made_simpler = &made_simpler}));
      OB_ASSIGN_OR_RETURN(const std::vector<std::vector<int64_t>> dims_of, DimsOf(sink, bindings));
      OB_RETURN_IF_ERROR(CheckRoom(*plan, sink, dims_of, inputs));
      return plan;
    };
    absl::StatusOr<std::unique_ptr<ExecutionPlan>> plan = try_it();
    if (!is_shared) OB_RETURN_IF_ERROR(share({}).status());  // the others wait for it
    const uint64_t made = plan.ok() ? KernelsOf(**plan) : 0;
    OB_ASSIGN_OR_RETURN(const Agreement all, AgreeOn(*group(), plan.status(), made));
    OB_RETURN_IF_ERROR(all.status);
    return PlanOfRanks{*std::move(plan), all.differs};
  }

  static uint64_t KernelsOf(const ExecutionPlan& plan) {
    VersionsNumber number;
    for (const Launch& launch : plan.launches)
      number.Add(launch.kernel->id, launch.kernel->source.opts);
    return number.Finish();
  }

  // All ranks replay by rank 0's log of kernel uses, so all have pinned the same since their last
  // Run. Kernels that are in use change on all ranks, or where one cannot make what the log says,
  // on none.
  // Errors: those of the group; on all ranks
  //   FAILED_PRECONDITION  the log says different things, or ranks do not use the same kernels
  absl::Status SwitchToPinned() {
    const std::vector<KernelVersion> versions = kernels_.NotAsPinned(pinned_);
    VersionsNumber number;
    for (const GraphId& kernel : pinned_) number.Add(kernel, *kernels_.PinnedOpts(kernel));
    for (const KernelVersion& version : versions)
      number.Add(version.kernel, kernels_.Find(version.kernel)->source.opts);
    absl::StatusOr<std::vector<ReadyKernel>> ready = kernels_.MakeReady(versions, compiler_);
    pinned_.clear();
    OB_ASSIGN_OR_RETURN(const Agreement all, AgreeOn(*group(), ready.status(), number.Finish()));
    if (all.differs)
      return absl::FailedPreconditionError(absl::StrCat(
          "rank ", *all.differs, " replays with other versions of kernels than rank 0"));
    if (all.status.ok()) {
      kernels_.Use(*std::move(ready));
    } else {
      telemetry::LogWarning("replay_keeps_kernels",
                            {{"message", std::string(all.status.message())}});
    }
    return absl::OkStatus();
  }

  // In a group, all ranks look for better kernels of a plan at the same Runs of it. The search
  // finds most soon after a graph is new, so they are ever further apart.
  static bool IsTurnOfKernels(uint64_t runs) { return runs >= 64 && std::has_single_bit(runs); }

  // Where rank 0 knows better versions of the plan's kernels and all ranks can load them, all use
  // them from now on. Errors: those of the group
  absl::Status SwitchTogether(const ExecutionPlan& plan) {
    std::vector<std::shared_ptr<KernelInUse>> kernels;
    for (const Launch& launch : plan.launches)
      if (std::ranges::find(kernels, launch.kernel) == kernels.end())
        kernels.push_back(launch.kernel);
    const bool chooses = group()->member().rank == 0;
    OB_ASSIGN_OR_RETURN(
        const std::vector<KernelVersion> versions,
        ShareVersions(*group(), chooses ? kernels_.FindBetter(kernels)
                                        : std::vector<KernelVersion>()));
    if (versions.empty()) return absl::OkStatus();
    absl::StatusOr<std::vector<ReadyKernel>> ready = kernels_.MakeReady(versions, compiler_);
    if (Agree(*group(), ready.status()).ok()) {
      kernels_.Use(*std::move(ready));
    } else {
      kernels_.Refuse(versions);
    }
    return group()->status();
  }

  static absl::StatusOr<std::vector<std::vector<int64_t>>> DimsOf(
      const UOp* sink, std::span<const Binding> bindings) {
    std::vector<std::vector<int64_t>> dims_of;  // of the outputs
    for (const UOp* result : sink->src) {
      OB_ASSIGN_OR_RETURN(std::vector<int64_t> dims, DimsAt(result->shape, bindings));
      dims_of.push_back(std::move(dims));
    }
    return dims_of;
  }

  absl::Status WaitForQueued() {
    const absl::Status status = [this] {
      const WatchedWait wait(queued_ > 0 ? watch_ : nullptr, WhatIsQueued(),
                             LongestOf(watch_, queued_us_));
      return device().Synchronize();
    }();
    queued_ = 0;
    queued_us_ = 0;
    longest_queued_.reset();
    return status;
  }

  // Notes a launch that nobody has waited for.
  void Queued(KernelInUse& kernel) {
    kernel.Ran(0);
    if (watch_ == nullptr) return;
    if (longest_queued_ == nullptr || kernel.least_us > longest_queued_->least_us)
      longest_queued_ = kernel.shared_from_this();
    ++queued_;
    queued_us_ += kernel.least_us;
  }

  std::string WhatIsQueued() const {
    if (longest_queued_ == nullptr) return "";
    if (queued_ == 1) return absl::StrCat("kernel ", longest_queued_->name);
    return absl::StrCat("one of ", queued_, " launches, the longest of which is kernel ",
                        longest_queued_->name);
  }

  void AddDeviceTime(Clock::time_point start) {
    const auto us = static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count());
    stats_.device_time_us += us;
    telemetry::Count(telemetry::Metric::kWorkerDeviceTime, us);
  }

  // Requires inputs and bindings that fit.
  absl::StatusOr<std::vector<DeviceArrayPtr>> RunPlan(ExecutionPlan& plan, const UOp* sink,
                                                      std::vector<DeviceArrayPtr> inputs,
                                                      std::span<const Binding> bindings) {
    const uint64_t prepare_ns = trace_ != nullptr ? trace_->Now() : 0;
    std::vector<runtime::DeviceAddress> input_data;  // also of those that become results
    input_data.reserve(inputs.size());
    for (const DeviceArrayPtr& input : inputs) input_data.push_back(input->address());
    OB_ASSIGN_OR_RETURN(std::vector<std::vector<int64_t>> dims_of, DimsOf(sink, bindings));
    OB_RETURN_IF_ERROR(CheckRoom(plan, sink, dims_of, inputs));
    std::vector<std::shared_ptr<DeviceArray>> outputs;
    for (size_t i = 0; i < sink->src.size(); ++i) {
      std::vector<int64_t> dims = std::move(dims_of[i]);
      absl::StatusOr<std::shared_ptr<DeviceArray>> array =
          NewOutput(sink->src[i]->dtype, std::move(dims), plan.schedule.over[i], inputs);
      if (!array.ok()) return AboutNode(array.status(), sink, sink->src[i]);
      outputs.push_back(*std::move(array));
    }
    const absl::StatusOr<runtime::DeviceBuffer> arena = NewArena(plan.schedule.arena_bytes);
    if (!arena.ok()) return AboutResult(arena.status(), sink, plan.largest_temporary);
    std::vector<runtime::DeviceAddress> memory;
    memory.reserve(plan.schedule.buffers.size());
    std::vector<runtime::DeviceBuffer> padded;  // inputs and outputs with dimensions of VARs
    for (const schedule::ScheduledBuffer& buffer : plan.schedule.buffers) {
      if (!buffer.padded_dims.empty()) {
        OB_ASSIGN_OR_RETURN(runtime::DeviceBuffer copy, device().Allocate(buffer.bytes()));
        memory.push_back(padded.emplace_back(std::move(copy)).address());
        if (buffer.kind == schedule::ScheduledBuffer::Kind::kInput) {
          const DeviceArray& input = *inputs[buffer.index];
          OB_RETURN_IF_ERROR(device().CopyBox(memory.back(), buffer.padded_dims, input.address(),
                                              input.dims, input.dims, ByteWidth(buffer.dtype)));
        }
        continue;
      }
      switch (buffer.kind) {
        case schedule::ScheduledBuffer::Kind::kInput:
          memory.push_back(input_data[buffer.index]);
          break;
        case schedule::ScheduledBuffer::Kind::kOutput:
          memory.push_back(outputs[buffer.index]->address());
          break;
        case schedule::ScheduledBuffer::Kind::kTemporary:
          memory.push_back(arena->address() + buffer.index);
          break;
      }
    }
    std::vector<int64_t> vars(bindings.empty() ? 0 : limits::kRankSlot + 1);
    for (const Binding& binding : bindings)
      if (binding.slot >= 0 && binding.slot <= limits::kRankSlot)
        vars[binding.slot] = binding.value;
    if (trace_ != nullptr) trace_->Add("prepare", prepare_ns);
    const Clock::time_point start = Clock::now();
    if (IsRecorded(plan)) {
      OB_RETURN_IF_ERROR(RunAtOnce(plan, sink, memory, vars));
    } else {
      OB_RETURN_IF_ERROR(RunSteps(plan, sink, memory, vars));
    }
    for (size_t i = 0; i < memory.size(); ++i)
      if (const schedule::ScheduledBuffer& buffer = plan.schedule.buffers[i];
          !buffer.padded_dims.empty() && buffer.kind == schedule::ScheduledBuffer::Kind::kOutput) {
        const DeviceArray& output = *outputs[buffer.index];
        OB_RETURN_IF_ERROR(device().CopyBox(output.address(), output.dims, memory[i],
                                            buffer.padded_dims, output.dims,
                                            ByteWidth(buffer.dtype)));
      }
    AddDeviceTime(start);
    stats_.kernels_launched += plan.launches.size();
    return std::vector<DeviceArrayPtr>(outputs.begin(), outputs.end());
  }

  // After an error no other rank touches `memory`.
  absl::Status RunSteps(const ExecutionPlan& plan, const UOp* sink,
                        const std::vector<runtime::DeviceAddress>& memory,
                        const std::vector<int64_t>& vars) {
    Transfers transfers(group(), &device(), &plan.schedule, &memory);
    for (const schedule::ScheduledStep& step : plan.schedule.steps)
      OB_RETURN_IF_ERROR(EndGroupIfFailed(RunStep(step, plan, sink, transfers, memory, vars)));
    return absl::OkStatus();
  }

  absl::Status RunStep(const schedule::ScheduledStep& step, const ExecutionPlan& plan,
                       const UOp* sink, Transfers& transfers,
                       const std::vector<runtime::DeviceAddress>& memory,
                       const std::vector<int64_t>& vars) {
    using Kind = schedule::ScheduledStep::Kind;
    if (step.kind == Kind::kKernel)
      return AboutResult(RunKernel(plan, step.index, memory, vars), sink,
                         plan.launches[step.index].result);
    if (step.kind == Kind::kStart) {
      if (queued_ > 0) OB_RETURN_IF_ERROR(WaitForQueued());
      return transfers.Start(step.index);
    }
    const TraceSpan span(trace_, "wait for ranks");
    return transfers.Wait(step.index);
  }

  // Before anything is launched. Errors: RESOURCE_EXHAUSTED, about the result that needs the most
  absl::Status CheckRoom(const ExecutionPlan& plan, const UOp* sink,
                         const std::vector<std::vector<int64_t>>& dims_of,
                         const std::vector<DeviceArrayPtr>& inputs) const {
    const absl::Status room = LookForRoom(plan, sink, dims_of, inputs);
    if (!absl::IsResourceExhausted(room) || !make_room_) return room;
    make_room_();
    return LookForRoom(plan, sink, dims_of, inputs);
  }
  absl::Status LookForRoom(const ExecutionPlan& plan, const UOp* sink,
                           const std::vector<std::vector<int64_t>>& dims_of,
                           const std::vector<DeviceArrayPtr>& inputs) const {
    MemoryNeed need;
    int64_t largest = plan.schedule.arena_bytes;
    int about = plan.largest_temporary;
    for (size_t i = 0; i < dims_of.size(); ++i) {
      const int over = plan.schedule.over[i];
      if (over != schedule::kNoInput && inputs[over].use_count() == 1) continue;
      int64_t bytes = ByteWidth(sink->src[i]->dtype);
      for (const int64_t dim : dims_of[i])
        if (__builtin_mul_overflow(bytes, dim, &bytes))
          return absl::OkStatus();  // NewArray says so
      need.Add(i, sink->src[i]->dtype, dims_of[i], bytes);
      if (bytes > largest) {
        largest = bytes;
        about = static_cast<int>(i);
      }
    }
    need.AddTemporaries(plan.schedule.arena_bytes);
    for (const schedule::ScheduledBuffer& buffer : plan.schedule.buffers)
      if (!buffer.padded_dims.empty()) need.AddTemporaries(buffer.bytes());
    return AboutResult(need.CheckOn(device()), sink, about);
  }

  // An array for a result: in the memory of the input that it is written over, or, where somebody
  // else holds that one, in a copy of it.
  absl::StatusOr<std::shared_ptr<DeviceArray>> NewOutput(DType dtype, std::vector<int64_t> dims,
                                                         int over,
                                                         std::vector<DeviceArrayPtr>& inputs) {
    if (over != schedule::kNoInput && inputs[over].use_count() == 1) {
      // Made by NewArray: the const is the pointer's alone.
      DeviceArray& given = const_cast<DeviceArray&>(*inputs[over]);
      return std::make_shared<DeviceArray>(
          DeviceArray{dtype, std::move(dims), std::move(given.buffer)});
    }
    OB_ASSIGN_OR_RETURN(std::shared_ptr<DeviceArray> array, NewArray(dtype, std::move(dims)));
    if (over != schedule::kNoInput)
      OB_RETURN_IF_ERROR(
          device().Copy(array->address(), inputs[over]->address(), inputs[over]->bytes()));
    return array;
  }

  absl::StatusOr<runtime::DeviceBuffer> NewArena(int64_t bytes) {
    absl::StatusOr<runtime::DeviceBuffer> arena = device().Allocate(bytes);
    if (arena.ok()) return arena;
    return absl::Status(
        arena.status().code(),
        absl::StrCat("the step's temporary values together: ", arena.status().message()));
  }

  // True if the device queues the whole plan faster than its kernels, and none is looked at alone.
  bool IsRecorded(const ExecutionPlan& plan) const {
    return device().properties().records_launches && debug_ < 2 && trace_ == nullptr &&
           plan.schedule.transfers.empty() &&
           std::ranges::none_of(plan.launches,
                                [](const Launch& launch) { return launch.kernel->timed(); });
  }

  absl::Status RunAtOnce(ExecutionPlan& plan, const UOp* sink,
                         const std::vector<runtime::DeviceAddress>& memory,
                         const std::vector<int64_t>& vars) {
    arguments_.clear();
    for (const Launch& launch : plan.launches) {
      const size_t first = arguments_.size();
      for (const int b : launch.buffers) arguments_.push_back(memory[b]);
      arguments_.resize(first + launch.kernel->loaded->buffer_count());
    }
    together_.clear();
    const runtime::DeviceAddress* next = arguments_.data();
    for (const Launch& launch : plan.launches) {
      const runtime::DeviceKernel& kernel = *launch.kernel->loaded;
      stats_.operations += kernel.flops();
      stats_.bytes_accessed += kernel.bytes();
      const auto count = static_cast<size_t>(kernel.buffer_count());
      together_.push_back({&kernel, {next, count}});
      next += count;
    }
    const absl::Status status = [&] {  // waits where the device has much queued
      const WatchedWait wait(queued_ > 0 ? watch_ : nullptr, WhatIsQueued(),
                             LongestOf(watch_, queued_us_));
      return device().LaunchAll(together_, vars, plan.record);
    }();
    if (!status.ok()) {
      const std::optional<size_t> at = runtime::LaunchOf(status);
      return AboutResult(status, sink,
                         at && *at < plan.launches.size() ? plan.launches[*at].result : kNoResult);
    }
    for (const Launch& launch : plan.launches) Queued(*launch.kernel);
    return absl::OkStatus();
  }

  absl::Status RunKernel(const ExecutionPlan& plan, size_t i,
                         const std::vector<runtime::DeviceAddress>& memory,
                         const std::vector<int64_t>& vars) {
    const Launch& launch = plan.launches[i];
    KernelInUse& kernel = *launch.kernel;
    stats_.operations += kernel.loaded->flops();
    stats_.bytes_accessed += kernel.loaded->bytes();
    arguments_.clear();
    for (const int b : launch.buffers) arguments_.push_back(memory[b]);
    arguments_.resize(kernel.loaded->buffer_count());
    if (!kernel.timed() && debug_ < 2 && trace_ == nullptr) {
      OB_RETURN_IF_ERROR(device().Launch(*kernel.loaded, arguments_, vars));
      Queued(kernel);
      return absl::OkStatus();
    }
    if (queued_ > 0) OB_RETURN_IF_ERROR(WaitForQueued());  // Time would, within this one's bound
    const WatchedWait wait(watch_, absl::StrCat("kernel ", kernel.name),
                           LongestOf(watch_, kernel.least_us));
    const uint64_t begin_ns = trace_ != nullptr ? trace_->Now() : 0;
    OB_ASSIGN_OR_RETURN(const double seconds, device().Time([&] {
      return device().Launch(*kernel.loaded, arguments_, vars);
    }));
    if (trace_ != nullptr)
      trace_->AddKernel(kernel.name, kernel.source.opts.value_or(""), begin_ns,
                        kernel.loaded->flops(), kernel.loaded->bytes());
    const double us = seconds * 1e6;
    kernel.Ran(us);
    if (debug_ >= 2) {
      std::fprintf(stderr, "kernel %3zu %10.1f us %8.1f GFLOP/s %7.1f GB/s  %s\n", i, us,
                   static_cast<double>(kernel.loaded->flops()) / us / 1e3,
                   static_cast<double>(kernel.loaded->bytes()) / us / 1e3, kernel.name.c_str());
    }
    return absl::OkStatus();
  }

  // Outside a group.
  absl::StatusOr<ExecutionPlan*> PlanFor(const GraphId& id, const UOp* sink,
                                         std::span<const int64_t> donated) {
    const PlanKey key(id, donated);
    if (ExecutionPlan* const known = plans_.Find(key); known != nullptr) return known;
    OB_ASSIGN_OR_RETURN(
        std::unique_ptr<ExecutionPlan> plan,
        maker_.Make({.sink = sink, .donated = donated, .tuned = true, .trace = trace_}));
    return Add(key, std::move(plan));
  }

  ExecutionPlan* Add(const PlanKey& key, std::unique_ptr<ExecutionPlan> plan) {
    ++stats_.plans_made;
    return plans_.Add(key, std::move(plan));
  }

  KernelCompiler* compiler_;
  int debug_;
  LaunchWatch* const watch_;
  KernelsInUse kernels_;
  PlanMaker maker_;
  IdleSearch idle_search_;
  KnownPlans plans_;
  // In a group.
  uint64_t epoch_ = 0;      // that the plans are of
  SimplerKernels simpler_;  // as all ranks make them, since one cannot as they were chosen
  std::vector<GraphId> pinned_;  // since the last Run
  std::vector<runtime::DeviceAddress> arguments_;  // of launches; kept, as it is filled often
  std::vector<runtime::KernelLaunch> together_;    // likewise
  // Since the last wait, with a watch only.
  size_t queued_ = 0;
  double queued_us_ = 0;
  std::shared_ptr<const KernelInUse> longest_queued_;
};

}  // namespace

std::unique_ptr<Engine> MakeCompiledEngine(KernelCompiler* compiler,
                                           std::unique_ptr<runtime::Device> device,
                                           const CompiledEngineOptions& options) {
  return std::make_unique<CompiledEngine>(compiler, std::move(device), options);
}

}  // namespace outboard::worker
