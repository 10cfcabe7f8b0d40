#include "worker/compile/compile_boxes.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/cores.h"
#include "telemetry/counters.h"
#include "worker/compile/box_messages.h"
#include "worker/process/message_io.h"
#include "worker/process/message_limits.h"

namespace outboard::worker {
namespace {

using std::chrono::milliseconds;

constexpr int kEndWaitMs = 1000;  // for a box that has closed its socket to say how it ended

CompileBoxesOptions Completed(CompileBoxesOptions options) {
  if (options.program.empty()) options.program = ProgramBeside("outboard-compiler");
  if (options.count <= 0)
    options.count =
        static_cast<int>(options.cores.empty() ? UsableCores().size() : options.cores.size());
  return options;
}

}  // namespace

CompileBoxes::CompileBoxes(CompileBoxesOptions options)
    : options_(Completed(std::move(options))), boxes_(options_.count) {}

absl::Status CompileBoxes::Send(Box& box, const KernelSource& kernel) {
  if (!box.child.running()) {
    OB_ASSIGN_OR_RETURN(const int output, ChildOutput::EndFor(ChildOutput::Of::kCompiler, output_));
    OB_ASSIGN_OR_RETURN(box.child, ChildProcess::Start({options_.program}, {.cores = options_.cores,
                                                                            .output = output}));
  }
  box.due = Clock::now() + options_.deadline;
  // A box that does not take it has ended or hangs, and Receive says how.
  WriteMessage(box.child.fd(), ToRequest({&kernel, 1}, options_.target), LimitsOf(box))
      .IgnoreError();
  return absl::OkStatus();
}

IoLimits CompileBoxes::LimitsOf(const Box& box) const {
  return {.deadline = box.due,
          .stop_fd = options_.stop_fd,
          .bytes_max = kCompileMessageBytesMax,
          .fields_max = kCompiledKernelFieldsMax};
}

absl::StatusOr<CompiledKernel> CompileBoxes::Receive(Box& box) {
  box.kernel = kNone;
  proto::CompileReply reply;
  absl::Status status = ReadMessage(box.child.fd(), &reply, LimitsOf(box));
  if (absl::IsCancelled(status)) {
    box.child.Stop();
    return status;
  }
  telemetry::CountAs(
      telemetry::Metric::kKernelsCompiled,
      status.ok() ? telemetry::CompileResult::kOk : telemetry::CompileResult::kFailed);
  if (status.ok() && reply.results_size() == 1) return FromResult(*reply.mutable_results(0));
  if (status.code() == absl::StatusCode::kDeadlineExceeded) {
    box.child.Stop();
    return absl::ResourceExhaustedError(
        absl::StrCat("compiling took longer than ", options_.deadline.count(), " ms"));
  }
  const std::string how = box.child.Wait(kEndWaitMs);
  box.child.Stop();
  return absl::ResourceExhaustedError(absl::StrCat("the compiler ", how));
}

std::vector<absl::StatusOr<CompiledKernel>> CompileBoxes::Compile(
    std::span<const KernelSource> kernels) {
  std::vector<absl::StatusOr<CompiledKernel>> results(kernels.size(),
                                                      absl::CancelledError("not compiled"));
  size_t next = 0, busy = 0;
  while (true) {
    for (Box& box : boxes_)
      while (box.kernel == kNone && next < kernels.size()) {
        if (absl::Status status = Send(box, kernels[next]); status.ok()) {
          box.kernel = next++;
          ++busy;
        } else {
          results[next++] = std::move(status);
        }
      }
    if (busy == 0) return results;

    std::vector<pollfd> waited{{options_.stop_fd, POLLIN, 0}};  // a negative one is left out
    Clock::time_point due = Clock::time_point::max();
    for (const Box& box : boxes_) {
      waited.push_back({box.kernel == kNone ? -1 : box.child.fd(), POLLIN, 0});
      if (box.kernel != kNone) due = std::min(due, box.due);
    }
    const auto left = std::chrono::ceil<milliseconds>(due - Clock::now());
    poll(waited.data(), waited.size(), static_cast<int>(std::max<int64_t>(0, left.count())));
    if (waited[0].revents != 0) {
      for (Box& box : boxes_)
        if (std::exchange(box.kernel, kNone) != kNone) box.child.Stop();
      return results;
    }
    for (size_t i = 0; i < boxes_.size(); ++i) {
      Box& box = boxes_[i];
      if (box.kernel == kNone || (waited[i + 1].revents == 0 && Clock::now() < box.due)) continue;
      const size_t kernel = box.kernel;
      results[kernel] = Receive(box);
      --busy;
    }
  }
}

}  // namespace outboard::worker
