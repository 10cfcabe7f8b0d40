#include "worker/compiled_engine.h"

#include <chrono>
#include <cstdio>
#include <list>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/check.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/print.h"
#include "compiler/rewrite/bind.h"
#include "compiler/schedule/schedule.h"
#include "runtime/cpu/device.h"
#include "worker/failed_node.h"
#include "worker/room.h"
#include "worker/tuner.h"

namespace outboard::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kPlansMax = 256;  // of one session; the oldest goes
constexpr size_t kProgramsMax =
    1 << 16;  // above this, those whose plans have gone are dropped from the list

struct Launch {
  std::shared_ptr<const cpu::Program> program;
  std::vector<int> buffers;  // into Schedule::buffers
  int result;                // the first that it writes, as ResultOf
};

constexpr int kNoResult = -1;

// The first result that a kernel writes; kNoResult for one that writes temporaries only.
int ResultOf(const schedule::Schedule& schedule, const schedule::Kernel& kernel) {
  for (const UOp* store : kernel.ast->src) {
    const UOp* const global = store->src[0]->src[0];  // STORE (INDEX (GLOBAL, place), value)
    const schedule::Buffer& buffer = schedule.buffers[kernel.buffers[global->arg[0]]];
    if (buffer.kind == schedule::Buffer::Kind::kOutput) return static_cast<int>(buffer.index);
  }
  return kNoResult;
}

absl::Status AboutResult(const absl::Status& status, const UOp* sink, int result) {
  if (status.ok() || result == kNoResult) return status;
  return AboutNode(status, sink, sink->src[result]);
}

struct Plan {
  schedule::Schedule schedule;  // without its kernels' graphs
  std::vector<Launch> launches;
  std::vector<std::string> names;  // of kernels, for DEBUG
};

class CompiledEngine final : public Engine {
 public:
  CompiledEngine(KernelCompiler* compiler, const CompiledEngineOptions& options)
      : compiler_(compiler),
        debug_(options.debug),
        device_({.threads = options.threads, .memory_bytes_max = options.memory_bytes_max}) {
    if (options.store != nullptr)
      tuner_.emplace(options.store, compiler, &device_,
                     TunerOptions{.width = options.beam, .report = options.debug >= 1});
  }

  std::string kind() const override { return "cpu"; }

  absl::StatusOr<std::vector<ArrayPtr>> Run(const GraphId& id, const UOp* sink,
                                            std::span<const ArrayPtr> inputs,
                                            std::span<const Binding> bindings) override {
    OB_RETURN_IF_ERROR(CheckInputs(sink, inputs, bindings));
    OB_ASSIGN_OR_RETURN(const Plan* plan, PlanFor(id, sink));

    std::vector<std::shared_ptr<Array>> outputs;
    for (size_t i = 0; i < sink->src.size(); ++i) {
      OB_ASSIGN_OR_RETURN(std::vector<int64_t> dims, DimsAt(sink->src[i]->shape, bindings));
      absl::StatusOr<std::shared_ptr<Array>> array =
          NewArray(sink->src[i]->dtype, std::move(dims));
      if (!array.ok()) return AboutNode(array.status(), sink, sink->src[i]);
      outputs.push_back(*std::move(array));
    }
    OB_ASSIGN_OR_RETURN(const cpu::Buffer arena,
                        device_.memory().Allocate(plan->schedule.arena_bytes,
                                                  cpu::Allocator::Contents::kUndefined));
    std::vector<void*> memory;
    std::vector<cpu::Buffer> rooms;  // of inputs and outputs with dimensions of VARs
    for (const schedule::Buffer& buffer : plan->schedule.buffers) {
      if (!buffer.rooms.empty()) {
        OB_ASSIGN_OR_RETURN(rooms.emplace_back(),
                            device_.memory().Allocate(buffer.bytes(),
                                                      cpu::Allocator::Contents::kUndefined));
        memory.push_back(rooms.back().data());
        if (buffer.kind == schedule::Buffer::Kind::kInput)
          Spread(inputs[buffer.index]->data(), inputs[buffer.index]->dims, buffer.rooms,
                 ByteWidth(buffer.dtype), static_cast<char*>(memory.back()));
        continue;
      }
      switch (buffer.kind) {
        case schedule::Buffer::Kind::kInput: memory.push_back(inputs[buffer.index]->data()); break;
        case schedule::Buffer::Kind::kOutput:
          memory.push_back(outputs[buffer.index]->data());
          break;
        case schedule::Buffer::Kind::kTemporary:
          memory.push_back(static_cast<char*>(arena.data()) + buffer.index);
          break;
      }
    }
    std::vector<int64_t> vars(bindings.empty() ? 0 : limits::kVarSlotMax);
    for (const Binding& binding : bindings)
      if (binding.slot >= 0 && binding.slot < limits::kVarSlotMax)
        vars[binding.slot] = binding.value;
    const Clock::time_point start = Clock::now();
    for (size_t i = 0; i < plan->launches.size(); ++i)
      OB_RETURN_IF_ERROR(
          AboutResult(RunKernel(*plan, i, memory, vars), sink, plan->launches[i].result));
    for (size_t i = 0; i < memory.size(); ++i)
      if (const schedule::Buffer& buffer = plan->schedule.buffers[i];
          !buffer.rooms.empty() && buffer.kind == schedule::Buffer::Kind::kOutput)
        Pack(static_cast<const char*>(memory[i]), outputs[buffer.index]->dims, buffer.rooms,
             ByteWidth(buffer.dtype), outputs[buffer.index]->data());
    stats_.device_time_us +=
        std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
    stats_.kernels_launched += plan->launches.size();
    return std::vector<ArrayPtr>(outputs.begin(), outputs.end());
  }

 private:
  absl::Status RunKernel(const Plan& plan, size_t i, const std::vector<void*>& memory,
                         const std::vector<int64_t>& vars) {
    const Launch& launch = plan.launches[i];
    std::vector<void*> buffers;
    buffers.reserve(launch.buffers.size() + 1);
    for (const int b : launch.buffers) buffers.push_back(memory[b]);
    buffers.resize(launch.program->buffer_count());
    buffers.push_back(const_cast<int64_t*>(vars.data()));
    const Clock::time_point start = debug_ >= 2 ? Clock::now() : Clock::time_point{};
    OB_RETURN_IF_ERROR(device_.Launch(*launch.program, buffers));
    if (debug_ >= 2) {
      const double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
      std::fprintf(stderr, "kernel %3zu %10.1f us %8.1f GFLOP/s %7.1f GB/s  %s\n", i, us,
                   static_cast<double>(launch.program->flops()) / us / 1e3,
                   static_cast<double>(launch.program->bytes()) / us / 1e3, plan.names[i].c_str());
    }
    return absl::OkStatus();
  }

  absl::StatusOr<const Plan*> PlanFor(const GraphId& id, const UOp* sink) {
    if (const auto found = plans_.find(id); found != plans_.end()) return found->second.get();
    OB_ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan, MakePlan(sink));
    ++stats_.plans_made;
    if (plans_.size() >= kPlansMax) {
      plans_.erase(order_.front());
      order_.pop_front();
    }
    order_.push_back(id);
    return plans_.emplace(id, std::move(plan)).first->second.get();
  }

  absl::StatusOr<std::unique_ptr<Plan>> MakePlan(const UOp* sink) {
    const Clock::time_point start = Clock::now();
    Graph graph;
    auto plan = std::make_unique<Plan>();
    OB_ASSIGN_OR_RETURN(schedule::Schedule schedule, schedule::MakeSchedule(graph, sink));
    if (debug_ >= 3) std::fputs(schedule::ScheduleToString(schedule).c_str(), stderr);

    // Programs of other plans are used again; those of this plan are held by it alone, so that they
    // go with it.
    std::vector<KernelSource> missing;
    std::vector<GraphId> ids, missing_ids;
    std::vector<int> results, missing_results;
    absl::flat_hash_map<GraphId, std::shared_ptr<const cpu::Program>> programs;
    if (tuner_.has_value()) tuner_->BeginPlan();
    for (size_t i = 0; i < schedule.kernels.size(); ++i) {
      const schedule::Kernel& kernel = schedule.kernels[i];
      if (debug_ >= 4) std::fprintf(stderr, "%s\n", ExpressionToString(kernel.ast, 4000).c_str());
      OB_ASSIGN_OR_RETURN(EncodedGraph encoded, EncodeGraph(kernel.ast));
      ids.push_back(encoded.id);
      results.push_back(ResultOf(schedule, kernel));
      const auto [place, fresh] = programs.try_emplace(encoded.id);
      if (!fresh) continue;  // a twin
      if (const auto known = programs_.find(encoded.id); known != programs_.end())
        place->second = known->second.lock();
      if (place->second != nullptr) continue;
      missing_ids.push_back(encoded.id);
      missing_results.push_back(results.back());
      missing.push_back({std::move(encoded.bytes), std::nullopt});
      if (tuner_.has_value())
        missing.back().opts = tuner_->OptsFor(kernel.ast, missing.back().encoding,
                                              schedule::KernelToString(schedule, i));
    }
    std::vector<absl::StatusOr<CompiledKernel>> compiled = compiler_->Compile(missing);
    // A store may have been written by another build, or by anybody.
    for (size_t i = 0; i < missing.size(); ++i) {
      if (compiled[i].ok() || !missing[i].opts.has_value()) continue;
      missing[i].opts = std::nullopt;
      compiled[i] = std::move(compiler_->Compile({&missing[i], 1})[0]);
    }
    absl::Status failure;
    for (size_t i = 0; i < missing.size(); ++i) {
      absl::StatusOr<std::shared_ptr<const cpu::Program>> program = LoadProgram(compiled[i]);
      failure.Update(AboutResult(program.status(), sink, missing_results[i]));
      if (program.ok()) programs_[missing_ids[i]] = programs[missing_ids[i]] = *std::move(program);
    }
    OB_RETURN_IF_ERROR(failure);
    if (programs_.size() > kProgramsMax)
      absl::erase_if(programs_, [](const auto& entry) { return entry.second.expired(); });
    for (size_t i = 0; i < ids.size(); ++i) {
      plan->launches.push_back({programs.at(ids[i]), schedule.kernels[i].buffers, results[i]});
      if (debug_ >= 2) plan->names.push_back(schedule::KernelToString(schedule, i));
    }
    schedule.kernels.clear();  // their graph ends with this function
    plan->schedule = std::move(schedule);
    if (debug_ >= 1)
      std::fprintf(stderr, "plan: %zu kernels, %zu compiled, %.1f MB of temporaries, %.1f ms\n",
                   plan->launches.size(), missing.size(),
                   static_cast<double>(plan->schedule.arena_bytes) / 1e6,
                   std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    return plan;
  }

  absl::StatusOr<std::shared_ptr<const cpu::Program>> LoadProgram(
      const absl::StatusOr<CompiledKernel>& compiled) {
    OB_RETURN_IF_ERROR(compiled.status());
    OB_ASSIGN_OR_RETURN(std::unique_ptr<cpu::Program> program, device_.Load(*compiled));
    return std::shared_ptr<const cpu::Program>(std::move(program));
  }

  cpu::Allocator& memory() override { return device_.memory(); }

  KernelCompiler* compiler_;
  int debug_;
  cpu::Device device_;
  std::optional<Tuner> tuner_;
  absl::flat_hash_map<GraphId, std::unique_ptr<Plan>> plans_;
  std::list<GraphId> order_;                                                  // of making
  absl::flat_hash_map<GraphId, std::weak_ptr<const cpu::Program>> programs_;  // of plans_
};

}  // namespace

std::unique_ptr<Engine> MakeCompiledEngine(KernelCompiler* compiler,
                                           const CompiledEngineOptions& options) {
  return std::make_unique<CompiledEngine>(compiler, options);
}

}  // namespace outboard::worker
