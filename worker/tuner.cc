#include "worker/tuner.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "compiler/codegen/opt.h"
#include "compiler/ir/check.h"
#include "compiler/search/beam.h"
#include "compiler/search/neighbours.h"
#include "worker/hardware_class.h"
#include "worker/tuning_key.h"

namespace outboard::worker {
namespace {

using Clock = std::chrono::steady_clock;

// A time is the least of runs that together take about this.
constexpr double kMeasuredSeconds = 0.02;
constexpr int kRunsMax = 20;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// As MakeX86Renderer finds it for this machine; a wrong guess makes candidates that do not compile.
codegen::Machine HostMachine() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
    return {64, 32};
  if (__builtin_cpu_supports("avx2")) return {32, 16};
  return {16, 16};
}

int64_t BytesOf(const UOp* kernel) {
  int64_t bytes = 0;
  for (const UOp* node : PostOrder(kernel))
    if (node->op == Op::kGlobal) bytes += node->arg[1] * ByteWidth(node->dtype);
  return bytes;
}

// Compiles as the engine does, runs and times in this process.
class HostDevice final : public search::Device {
 public:
  HostDevice(const std::string& encoding, KernelCompiler* compiler, cpu::Device* device)
      : encoding_(encoding), compiler_(compiler), device_(device) {}

  absl::StatusOr<CompiledKernel> Compile(const std::vector<codegen::Opt>& opts) override {
    const KernelSource source{encoding_, codegen::OptsToString(opts)};
    return std::move(compiler_->Compile({&source, 1})[0]);
  }
  absl::Status Run(const CompiledKernel& kernel, std::span<void* const> buffers, int64_t task_begin,
                   int64_t task_end) override {
    OB_ASSIGN_OR_RETURN(const cpu::LoadedObject object,
                        cpu::LoadedObject::Load(kernel.object, kernel.symbol));
    object.function()(buffers.data(), task_begin, task_end);
    return absl::OkStatus();
  }
  absl::StatusOr<double> Seconds(const CompiledKernel& kernel, std::span<void* const> buffers,
                                 double most_seconds) override {
    OB_ASSIGN_OR_RETURN(const std::unique_ptr<cpu::Program> program, device_->Load(kernel));
    double least = 0, total = 0;
    // The first run also brings code and data into caches: it counts only if it says enough.
    for (int run = 0; run < kRunsMax && (run < 3 || total < kMeasuredSeconds); ++run) {
      const Clock::time_point start = Clock::now();
      OB_RETURN_IF_ERROR(device_->Launch(*program, buffers));
      const double seconds = SecondsSince(start);
      total += seconds;
      least = run == 0 ? seconds : std::min(least, seconds);
      if (least > 2 * most_seconds || total > 1) break;
    }
    return least;
  }

 private:
  const std::string& encoding_;
  KernelCompiler* compiler_;
  cpu::Device* device_;
};

}  // namespace

Tuner::Tuner(KernelStore* store, KernelCompiler* compiler, cpu::Device* device,
             const TunerOptions& options)
    : store_(store),
      compiler_(compiler),
      device_(device),
      options_(options),
      hardware_(HardwareClass()) {}

std::optional<std::string> Tuner::OptsFor(const UOp* kernel, const std::string& encoding,
                                          const std::string& name) {
  const absl::StatusOr<std::string> id = TuningId(kernel);
  if (!id.ok()) return std::nullopt;
  const TuningKey key{*id, search::kSpaceVersion, hardware_};
  absl::StatusOr<std::optional<Tuning>> known = store_->Find(key);
  if (!known.ok()) return std::nullopt;
  const bool searched = known->has_value() && (*known)->width >= options_.width;
  if (options_.width > 0 && !searched && plan_seconds_ < options_.plan_seconds_max &&
      BytesOf(kernel) <= options_.memory_bytes_max) {
    const absl::Status status = Search(kernel, encoding, name, key, *known);
    if (options_.report && !status.ok())
      std::fprintf(stderr, "beam: %s  %s\n", status.ToString().c_str(), name.c_str());
    known = store_->Find(key);
  }
  if (!known.ok() || !known->has_value()) return std::nullopt;
  const search::Trial* const best = (*known)->best();
  if (best == nullptr) return std::nullopt;
  return codegen::OptsToString(best->opts);
}

absl::Status Tuner::Search(const UOp* kernel, const std::string& encoding, const std::string& name,
                           const TuningKey& key, const std::optional<Tuning>& known) {
  const Clock::time_point start = Clock::now();
  HostDevice device(encoding, compiler_, device_);
  std::vector<search::Trial> trials;
  if (known.has_value()) trials = known->trials;
  const size_t known_count = trials.size();
  search::BeamOptions options;
  options.width = options_.width;
  options.machine = HostMachine();
  options.stop = [&] {
    const double seconds = SecondsSince(start);
    return seconds > options_.kernel_seconds_max ||
           plan_seconds_ + seconds > options_.plan_seconds_max;
  };
  // What is not kept is measured again; the search itself does not need it.
  options.on_trial = [&](const search::Trial& trial) {
    store_->Add(key, name, trial).IgnoreError();
  };
  const absl::StatusOr<search::BeamResult> result =
      search::Beam(kernel, device, options, std::move(trials));
  plan_seconds_ += SecondsSince(start);
  OB_RETURN_IF_ERROR(result.status());
  if (result->finished) OB_RETURN_IF_ERROR(store_->Finish(key, options_.width));
  if (options_.report)
    std::fprintf(stderr, "beam: %5.1f s, %3zu trials%s, %.1f to %.1f us  %s  %s\n",
                 SecondsSince(start), result->trials.size() - known_count,
                 result->finished ? "" : " (goes on another time)",
                 static_cast<double>(result->heuristic_ns) / 1e3,
                 static_cast<double>(result->best.time_ns) / 1e3,
                 codegen::OptsToString(result->best.opts).c_str(), name.c_str());
  return absl::OkStatus();
}

}  // namespace outboard::worker
