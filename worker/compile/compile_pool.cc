#include "worker/compile/compile_pool.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/cores.h"
#include "telemetry/counters.h"
#include "worker/compile/compile_messages.h"
#include "worker/compile/compile_process.h"
#include "worker/process/message_io.h"
#include "worker/process/message_limits.h"

namespace outboard::worker {
namespace {

using std::chrono::milliseconds;

constexpr int kEndWaitMs = 1000;  // for a process that has closed its socket to say how it ended

CompilePoolOptions Completed(CompilePoolOptions options) {
  if (options.count <= 0)
    options.count =
        static_cast<int>(options.cores.empty() ? UsableCores().size() : options.cores.size());
  return options;
}

}  // namespace

CompilePool::CompilePool(CompilePoolOptions options)
    : options_(Completed(std::move(options))), processes_(options_.count) {}

absl::Status CompilePool::Send(Process& process, const KernelSource& kernel) {
  if (!process.child.running()) {
    OB_ASSIGN_OR_RETURN(const int output, ChildOutput::EndFor(ChildOutput::Of::kCompiler, output_));
    OB_ASSIGN_OR_RETURN(process.child, StartCompiler(options_.program, options_.cores, output));
    process.is_fresh = true;
  }
  process.due = Clock::now() + options_.deadline;
  // A process that does not take it has ended or hangs, and Receive says how.
  WriteMessage(process.child.fd(), ToRequest({&kernel, 1}, options_.target), LimitsOf(process))
      .IgnoreError();
  return absl::OkStatus();
}

IoLimits CompilePool::LimitsOf(const Process& process) const {
  return {.deadline = process.due,
          .stop_fd = options_.stop_fd,
          .bytes_max = kCompileMessageBytesMax,
          .fields_max = CompileReplyFieldsMax(1)};
}

absl::StatusOr<CompiledKernel> CompilePool::Receive(Process& process) {
  process.kernel = kNone;
  proto::CompileReply reply;
  absl::Status status = ReadMessage(process.child.fd(), &reply, LimitsOf(process));
  if (absl::IsCancelled(status)) {
    process.child.Stop();
    return status;
  }
  telemetry::CountAs(
      telemetry::Metric::kKernelsCompiled,
      status.ok() ? telemetry::CompileResult::kOk : telemetry::CompileResult::kFailed);
  if (status.ok() && reply.results_size() == 1) {
    process.is_fresh = false;
    absl::StatusOr<CompiledKernel> kernel = FromResult(std::move(*reply.mutable_results(0)));
    if (kernel.ok()) ReportGivenUp(*kernel);
    return kernel;
  }
  if (status.code() == absl::StatusCode::kDeadlineExceeded) {
    process.child.Stop();
    return absl::ResourceExhaustedError(
        absl::StrCat("compiling took longer than ", options_.deadline.count(), " ms"));
  }
  const ChildEnd end = process.child.Wait(kEndWaitMs);
  process.child.Stop();
  return EndOfCompiler(end);
}

std::vector<absl::StatusOr<CompiledKernel>> CompilePool::Compile(
    std::span<const KernelSource> kernels) {
  std::vector<absl::StatusOr<CompiledKernel>> results(kernels.size(),
                                                      absl::CancelledError("not compiled"));
  size_t next = 0, busy = 0;
  while (true) {
    for (Process& process : processes_)
      while (process.kernel == kNone && next < kernels.size()) {
        if (absl::Status status = Send(process, kernels[next]); status.ok()) {
          process.kernel = next++;
          ++busy;
        } else {
          results[next++] = std::move(status);
        }
      }
    if (busy == 0) return results;

    std::vector<pollfd> waited{{options_.stop_fd, POLLIN, 0}};  // a negative one is left out
    Clock::time_point due = Clock::time_point::max();
    for (const Process& process : processes_) {
      waited.push_back({process.kernel == kNone ? -1 : process.child.fd(), POLLIN, 0});
      if (process.kernel != kNone) due = std::min(due, process.due);
    }
    const auto left = std::chrono::ceil<milliseconds>(due - Clock::now());
    poll(waited.data(), waited.size(), static_cast<int>(std::max<int64_t>(0, left.count())));
    if (waited[0].revents != 0) {
      for (Process& process : processes_)
        if (std::exchange(process.kernel, kNone) != kNone) process.child.Stop();
      return results;
    }
    for (size_t i = 0; i < processes_.size(); ++i) {
      Process& process = processes_[i];
      if (process.kernel == kNone) continue;
      if (waited[i + 1].revents == 0 && Clock::now() < process.due) continue;
      const size_t kernel = process.kernel;
      const bool is_late = Clock::now() >= process.due;
      results[kernel] = Receive(process);
      // What others have left behind in that process may have ended it: once more, in another.
      if (absl::IsResourceExhausted(results[kernel].status()) && !is_late && !process.is_fresh) {
        if (absl::Status status = Send(process, kernels[kernel]); status.ok()) {
          process.kernel = kernel;
          results[kernel] = absl::CancelledError("not compiled");
          continue;
        } else {
          results[kernel] = std::move(status);
        }
      }
      --busy;
    }
  }
}

}  // namespace outboard::worker
