#include "worker/tuning/kernel_measurer.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "base/check.h"

namespace outboard::worker {
namespace {

using Clock = std::chrono::steady_clock;

// Compiled together: some for each processor, half a second's work.
constexpr size_t kTogether = 16;
// A time is the least of runs that together take about this.
constexpr double kMeasuredSeconds = 0.02;
constexpr int kRunsMax = 20;
// So many runs are made of a kernel even where they take longer, but not beyond so many seconds: of
// what runs for long, what else the machine does is a small part.
constexpr int kRunsMin = 3;
constexpr double kLongSeconds = 0.2;
// What a first task or run, with cold caches, must be above the limit to be given up on.
constexpr double kColdFactor = 1.5;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

void KernelMeasurer::Expect(std::span<const std::vector<codegen::Opt>> candidates) {
  expected_.clear();
  ready_.clear();
  for (const std::vector<codegen::Opt>& opts : candidates)
    expected_.push_back(codegen::OptsToString(opts));
}

absl::StatusOr<CompiledKernel> KernelMeasurer::Compile(const std::vector<codegen::Opt>& opts) {
  const std::string wanted = codegen::OptsToString(opts);
  if (!ready_.contains(wanted)) {
    std::vector<KernelSource> batch{{encoding_, wanted}};
    while (!expected_.empty() && batch.size() < kTogether) {
      if (expected_.front() != wanted) batch.push_back({encoding_, expected_.front()});
      expected_.pop_front();
    }
    std::vector<absl::StatusOr<CompiledKernel>> compiled = compiler_->Compile(batch);
    for (size_t i = 0; i < batch.size(); ++i)
      ready_.insert_or_assign(*batch[i].opts, std::move(compiled[i]));
  }
  return std::move(ready_.extract(wanted).mapped());
}

absl::Status KernelMeasurer::Run(const CompiledKernel& kernel, std::span<void* const> buffers,
                                 int64_t task_begin, int64_t task_end) {
  OB_ASSIGN_OR_RETURN(const cpu::LoadedObject object,
                      cpu::LoadedObject::Load(kernel.object, kernel.symbol));
  object.function()(buffers.data(), task_begin, task_end);
  return absl::OkStatus();
}

absl::StatusOr<double> KernelMeasurer::Seconds(const CompiledKernel& kernel,
                                               std::span<void* const> buffers,
                                               double most_seconds) {
  OB_ASSIGN_OR_RETURN(const std::unique_ptr<cpu::Program> program, device_->Load(kernel));
  const int threads = device_->threads();
  if (kernel.tasks >= 4 * threads) {
    // One of many tasks: a share of the work, without the others' threads.
    const Clock::time_point start = Clock::now();
    OB_RETURN_IF_ERROR(Run(kernel, buffers, 0, 1));
    const double whole = SecondsSince(start) * static_cast<double>(kernel.tasks) / threads;
    if (whole > 2 * kColdFactor * most_seconds) return whole;
  }
  double least = 0, total = 0;
  for (int run = 0; run < kRunsMax; ++run) {
    if (total >= kMeasuredSeconds && (run >= kRunsMin || total >= kLongSeconds)) break;
    const Clock::time_point start = Clock::now();
    OB_RETURN_IF_ERROR(device_->Launch(*program, buffers));
    const double seconds = SecondsSince(start);
    total += seconds;
    least = run == 0 ? seconds : std::min(least, seconds);
    if (least > (run == 0 ? kColdFactor : 1) * most_seconds) break;
  }
  return least;
}

}  // namespace outboard::worker
