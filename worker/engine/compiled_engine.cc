#include "worker/engine/compiled_engine.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <list>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/copies.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/print.h"
#include "compiler/program/online/plan.h"
#include "compiler/rewrite/bind.h"
#include "compiler/schedule/schedule.h"
#include "telemetry/counters.h"
#include "worker/engine/execution_plan.h"
#include "worker/engine/idle_search.h"
#include "worker/engine/kernels_in_use.h"
#include "worker/engine/memory_need.h"
#include "worker/engine/planned_launches.h"
#include "worker/engine/repeat.h"
#include "worker/engine/transfers.h"
#include "worker/executor/failed_node.h"
#include "worker/tuning/tuner.h"

namespace outboard::worker {
namespace {

using Clock = std::chrono::steady_clock;

absl::Status AboutResult(const absl::Status& status, const UOp* sink, int result) {
  if (status.ok() || result == kNoResult) return status;
  return AboutNode(status, sink, sink->src[result]);
}

class CompiledEngine final : public Engine {
 public:
  CompiledEngine(KernelCompiler* compiler, std::unique_ptr<runtime::Device> device,
                 const CompiledEngineOptions& options)
      : Engine(std::move(device)),
        compiler_(compiler),
        debug_(options.debug),
        scores_(options.scores),
        watch_(options.launch_watch),
        target_(compiler->target()),
        kernels_(&this->device(), options.store, options.idle_compiler,
                 compiler->target().Fingerprint()),
        idle_search_(options, &this->device(), target_) {
    if (options.store != nullptr)
      tuner_.emplace(
          options.store, options.candidates != nullptr ? options.candidates : compiler,
          &this->device(),
          TunerOptions{.width = options.beam, .report = options.debug >= 1, .target = target_,
                       .watch = watch_});
  }

  std::string kind() const override { return device().properties().kind; }

  std::vector<KernelVersion> TakeVersions() override { return kernels_.TakeVersions(); }
  void Pin(const KernelVersion& version) override { kernels_.Pin(version, compiler_); }
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

  // As PlanFor. In a group the first Run of a plan is one that all ranks can begin.
  absl::StatusOr<ExecutionPlan*> AgreedPlan(const GraphId& id, const UOp* sink,
                                            const std::vector<DeviceArrayPtr>& inputs,
                                            std::span<const Binding> bindings,
                                            std::span<const int64_t> donated) {
    if (group() == nullptr || plans_.Has(PlanKey(id, donated)))
      return PlanFor(id, sink, donated);
    const auto try_it = [&]() -> absl::StatusOr<ExecutionPlan*> {
      OB_ASSIGN_OR_RETURN(ExecutionPlan * plan, PlanFor(id, sink, donated));
      OB_ASSIGN_OR_RETURN(const std::vector<std::vector<int64_t>> dims_of, DimsOf(sink, bindings));
      OB_RETURN_IF_ERROR(CheckRoom(*plan, sink, dims_of, inputs));
      return plan;
    };
    const absl::StatusOr<ExecutionPlan*> plan = try_it();
    if (absl::Status agreed = Agree(*group(), plan.status()); !agreed.ok()) {
      plans_.Forget(PlanKey(id, donated));  // all ranks ask each other again
      return agreed;
    }
    return plan;
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

  absl::StatusOr<ExecutionPlan*> PlanFor(const GraphId& id, const UOp* sink,
                                         std::span<const int64_t> donated) {
    const PlanKey key(id, donated);
    if (ExecutionPlan* const known = plans_.Find(key); known != nullptr) return known;
    OB_ASSIGN_OR_RETURN(std::unique_ptr<ExecutionPlan> plan, MakePlan(sink, donated));
    ++stats_.plans_made;
    return plans_.Add(key, std::move(plan));
  }

  using Kernels = absl::flat_hash_map<GraphId, std::shared_ptr<KernelInUse>>;

  // Sets the ids of `wanted` and adds their kernels. Kernels of other plans are used again; those
  // of this plan are held by it alone, so that they go with it. One in several copies may be
  // refused, since each can be launched alone.
  absl::Status MakeKernels(Graph& graph, const schedule::Schedule& schedule, const UOp* sink,
                           const std::vector<int>& results, std::vector<WantedKernel>& wanted,
                           Kernels& kernels, size_t& count) {
    std::vector<KernelSource> missing;
    std::vector<std::string> missing_names;
    std::vector<size_t> missing_places;  // in `wanted`
    std::vector<Tuner::Kernel> tuned;  // those of `missing` whose Opts nobody has pinned
    std::vector<size_t> tuned_places;
    // Ranks that looked into the store at different times could compute different bits.
    const bool is_tuned = tuner_.has_value() && group() == nullptr;
    if (is_tuned) tuner_->BeginPlan();
    for (size_t w = 0; w < wanted.size(); ++w) {
      WantedKernel& one = wanted[w];
      const UOp* const ast = WithCopies(graph, schedule.kernels[one.first].ast, one.copies);
      if (debug_ >= 4) std::fprintf(stderr, "%s\n", ExpressionToString(ast, 4000).c_str());
      OB_ASSIGN_OR_RETURN(EncodedGraph encoded, EncodeGraph(ast));
      one.id = encoded.id;
      const auto [place, fresh] = kernels.try_emplace(encoded.id);
      if (!fresh) continue;  // a twin
      place->second = kernels_.Find(encoded.id);
      if (place->second != nullptr) continue;
      missing_places.push_back(w);
      missing.push_back({std::move(encoded.bytes), std::nullopt});
      const std::string copies = one.copies > 1 ? absl::StrCat(one.copies, " x ") : "";
      missing_names.push_back(copies + schedule::KernelToString(schedule, one.first));
      if (const auto pinned = kernels_.PinnedOpts(encoded.id); pinned.has_value()) {
        missing.back().opts = *pinned;
      } else if (is_tuned) {
        tuned.push_back({ast, missing_names.back()});
        tuned_places.push_back(missing.size() - 1);
      }
    }
    if (!tuned.empty()) {
      std::vector<std::optional<std::string>> opts = tuner_->OptsFor(tuned);
      for (size_t i = 0; i < tuned.size(); ++i) missing[tuned_places[i]].opts = std::move(opts[i]);
    }
    const uint64_t compile_ns = trace_ != nullptr ? trace_->Now() : 0;
    std::vector<absl::StatusOr<CompiledKernel>> compiled = compiler_->Compile(missing);
    // A store may have been written by another build, or by anybody.
    for (size_t i = 0; i < missing.size(); ++i) {
      if (compiled[i].ok() || !missing[i].opts.has_value()) continue;
      missing[i].opts = std::nullopt;
      compiled[i] = std::move(compiler_->Compile({&missing[i], 1})[0]);
    }
    if (trace_ != nullptr)
      trace_->Add("compile", compile_ns,
                  absl::StrCat(missing.size(), " of ", wanted.size(), " kernels"));
    // Returns whether one that failed may be left out.
    const auto refuse = [&](size_t i) {
      const WantedKernel& one = wanted[missing_places[i]];
      if (one.copies == 1) return false;
      for (WantedKernel& other : wanted) other.refused |= other.id == one.id;
      return true;
    };
    const auto about = [&](const absl::Status& status, size_t i) {
      return AboutResult(
          status, sink,
          results[schedule.kernels[wanted[missing_places[i]].first].buffers[0]]);
    };
    std::vector<CompiledKernel> objects;
    std::vector<size_t> places;  // of objects, in `missing`
    for (size_t i = 0; i < missing.size(); ++i) {
      if (!compiled[i].ok() && refuse(i)) continue;
      OB_RETURN_IF_ERROR(about(compiled[i].status(), i));
      objects.push_back(*std::move(compiled[i]));
      places.push_back(i);
    }
    std::vector<runtime::LoadedKernel> loaded = device().LoadAll(objects);
    for (size_t o = 0; o < objects.size(); ++o) {
      const size_t i = places[o];
      if (!loaded[o].ok() && missing[i].opts.has_value()) {  // the driver may take the plain one
        missing[i].opts = std::nullopt;
        const auto plain = std::move(compiler_->Compile({&missing[i], 1})[0]);
        if (plain.ok()) loaded[o] = device().Load(*plain);
      }
      if (!loaded[o].ok() && refuse(i)) continue;
      OB_RETURN_IF_ERROR(about(loaded[o].status(), i));
      const GraphId& id = wanted[missing_places[i]].id;
      kernels[id] = kernels_.Add(id, std::move(missing[i]), std::move(missing_names[i]),
                                 *std::move(loaded[o]));
      ++count;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<ExecutionPlan>> MakePlan(const UOp* sink,
                                                          std::span<const int64_t> donated) {
    const TraceSpan span(trace_, "plan");
    const Clock::time_point start = Clock::now();
    Graph graph;
    auto plan = std::make_unique<ExecutionPlan>();
    OB_ASSIGN_OR_RETURN(schedule::Schedule schedule,
                        schedule::MakeSchedule(graph, sink, target_, donated, ScheduleOptionsOf()));
    if (debug_ >= 3) std::fputs(schedule::ScheduleToString(schedule).c_str(), stderr);

    const std::vector<int> results = ResultsOf(schedule);
    std::vector<WantedKernel> wanted = WantedBy(schedule);
    Kernels kernels;
    size_t compiled = 0;
    OB_RETURN_IF_ERROR(MakeKernels(graph, schedule, sink, results, wanted, kernels, compiled));
    if (std::ranges::any_of(wanted, &WantedKernel::refused)) {
      wanted = OneByOne(wanted);
      OB_RETURN_IF_ERROR(MakeKernels(graph, schedule, sink, results, wanted, kernels, compiled));
    }
    for (const WantedKernel& one : wanted) {
      const std::shared_ptr<KernelInUse>& kernel = kernels.at(one.id);
      plan->launches.push_back({kernel, BuffersOf(schedule, one, *kernel->loaded),
                                results[schedule.kernels[one.first].buffers[0]]});
    }
    int64_t largest = 0, result_bytes = 0, in_place_bytes = 0;
    for (size_t b = 0; b < schedule.buffers.size(); ++b) {
      const schedule::ScheduledBuffer& buffer = schedule.buffers[b];
      if (buffer.kind == schedule::ScheduledBuffer::Kind::kOutput) {
        result_bytes += buffer.bytes();
        if (schedule.over[buffer.index] != schedule::kNoInput) in_place_bytes += buffer.bytes();
      } else if (buffer.kind == schedule::ScheduledBuffer::Kind::kTemporary &&
                 buffer.bytes() > largest) {
        largest = buffer.bytes();
        plan->largest_temporary = results[b];
      }
    }
    const size_t count = schedule.kernels.size();
    schedule.kernels.clear();  // their graph ends with this function
    plan->schedule = std::move(schedule);
    NumberByLaunch(wanted, plan->schedule.steps);
    if (debug_ >= 1)
      std::fprintf(stderr,
                   "plan: %zu kernels, %zu compiled, %zu launches, %.1f MB of temporaries, "
                   "%.1f MB of results, %.1f of them in place, %.1f ms\n",
                   count, compiled, plan->launches.size(),
                   static_cast<double>(plan->schedule.arena_bytes) / 1e6,
                   static_cast<double>(result_bytes) / 1e6,
                   static_cast<double>(in_place_bytes) / 1e6,
                   std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    return plan;
  }

  schedule::ScheduleOptions ScheduleOptionsOf() const {
    schedule::ScheduleOptions options{.scores = scores_};
    if (target_.kind == TargetKind::kCuda)
      options.computes_scores = [this](const UOp* kernel) {
        return program::ComputesScores(kernel, target_);
      };
    return options;
  }

  KernelCompiler* compiler_;
  int debug_;
  const schedule::ScorePolicy scores_;
  LaunchWatch* const watch_;
  const Target target_;
  std::optional<Tuner> tuner_;
  KernelsInUse kernels_;
  IdleSearch idle_search_;
  KnownPlans plans_;
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
