#include "worker/compile/compile_process.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/cores.h"
#include "telemetry/counters.h"
#include "telemetry/log.h"
#include "worker/compile/compile_messages.h"
#include "worker/process/message_io.h"
#include "worker/process/message_limits.h"
#include "worker/process/program_file.h"
#include "worker/sandbox/sandbox_limits.h"
#include "worker/sandbox/session_share.h"

namespace outboard::worker {
namespace {

Sha256Digest NameOf(const KernelSource& kernel) {
  return Sha256(absl::StrCat(kernel.encoding, kernel.opts.has_value() ? "\n" + *kernel.opts : ""));
}

}  // namespace

absl::StatusOr<ChildProcess> StartCompiler(const std::string& path, const std::vector<int>& cores,
                                           int output) {
  const ProgramFile program = path.empty() ? CompilerProgram() : ProgramAt(path);
  OB_ASSIGN_OR_RETURN(ChildProcess process,
                      ChildProcess::Start({program.path}, {.file = program.file,
                                                           .cores = cores,
                                                           .output = output}));
  OB_RETURN_IF_ERROR(program.Check());
  return process;
}

void ReportGivenUp(const CompiledKernel& kernel) {
  if (kernel.given_up.empty()) return;
  telemetry::Count(telemetry::Metric::kKernelPlansGivenUp);
  telemetry::LogWarning("kernel_plan_given_up",
                        {{"why", absl::StrJoin(kernel.given_up, "; ")},
                         {"blocks", kernel.blocks[0] * kernel.blocks[1] * kernel.blocks[2]},
                         {"threads", kernel.threads[0]},
                         {"flops", kernel.flops}});
}

absl::Status EndOfCompiler(const ChildEnd& end, absl::string_view more) {
  if (end.IsExit(kExitNoMemoryAtStart))
    return absl::UnavailableError("a compiler finds no memory to start in");
  if (end.IsExit(kExitNoMemory))
    return absl::ResourceExhaustedError(
        absl::StrCat("the kernel takes more memory to compile than a compiler may have, which is ",
                     limits::kCompilerAddressBytes >> 20, " MiB at most"));
  return absl::ResourceExhaustedError(
      absl::StrCat("the compiler ", end.ToString(), more.empty() ? "" : " (", more,
                   more.empty() ? "" : ")"));
}

CompileProcess::CompileProcess(CompileProcessOptions options) : options_(std::move(options)) {
  EnsureStarted().IgnoreError();  // said by Compile
}

void CompileProcess::SetTarget(Target target) {
  options_.target = std::move(target);
  refused_.clear();
}

void CompileProcess::MoveTo(std::vector<int> cores) {
  options_.cores = std::move(cores);
  if (!process_.running()) return;
  const std::vector<int> all = options_.cores.empty() ? UsableCores() : options_.cores;
  if (!MoveToCores(process_.pid(), all).ok()) process_.Stop();  // the next one is started there
}

absl::Status CompileProcess::EnsureStarted() {
  if (process_.running()) return absl::OkStatus();
  OB_ASSIGN_OR_RETURN(const int output, ChildOutput::EndFor(ChildOutput::Of::kCompiler, output_));
  OB_ASSIGN_OR_RETURN(process_, StartCompiler(options_.program, options_.cores, output));
  is_fresh_ = true;
  return absl::OkStatus();
}

absl::Status CompileProcess::Ask(std::span<const KernelSource> kernels,
                             std::vector<absl::StatusOr<CompiledKernel>>* results) {
  OB_RETURN_IF_ERROR(EnsureStarted());
  is_fresh_ = false;
  const auto begin = std::chrono::steady_clock::now();
  proto::CompileReply reply;
  IoLimits limits = IoLimits::Within(DeadlineOf(kernels.size()));
  limits.stop_fd = options_.stop_fd;
  limits.bytes_max = kCompileMessageBytesMax;
  limits.fields_max = CompileReplyFieldsMax(kernels.size());
  absl::Status status = WriteMessage(process_.fd(), ToRequest(kernels, options_.target), limits);
  if (status.ok()) status = ReadMessage(process_.fd(), &reply, limits);
  if (status.ok() && reply.results_size() != static_cast<int>(kernels.size()))
    status = absl::InternalError("the compile process answered another question");
  if (absl::IsCancelled(status)) {
    process_.Stop();
    return status;
  }
  telemetry::ObserveNs(
      telemetry::Metric::kCompileTime,
      std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count());
  telemetry::CountAs(
      telemetry::Metric::kKernelsCompiled,
      status.ok() ? telemetry::CompileResult::kOk : telemetry::CompileResult::kFailed,
      kernels.size());
  if (absl::IsDeadlineExceeded(status)) {
    process_.Stop();
    return absl::DeadlineExceededError(
        absl::StrCat("compiling took longer than ", DeadlineOf(kernels.size()).count(), " ms"));
  }
  if (!status.ok())
    return EndOfCompiler(process_.Wait(/*milliseconds=*/1000), status.message());
  for (int i = 0; i < reply.results_size(); ++i) {
    (*results)[i] = FromResult(std::move(*reply.mutable_results(i)));
    if ((*results)[i].ok()) ReportGivenUp(*(*results)[i]);
  }
  return absl::OkStatus();
}

absl::StatusOr<CompiledKernel> CompileProcess::CompileAlone(const KernelSource& kernel) {
  std::vector<absl::StatusOr<CompiledKernel>> one(1, absl::InternalError("not compiled"));
  const bool was_fresh = is_fresh_ || !process_.running();
  absl::Status status = Ask({&kernel, 1}, &one);
  // What others have left behind in that process may have done it.
  if (absl::IsResourceExhausted(status) && !was_fresh) status = Ask({&kernel, 1}, &one);
  if (status.ok()) return std::move(one[0]);
  if (absl::IsDeadlineExceeded(status)) status = absl::ResourceExhaustedError(status.message());
  if (absl::IsResourceExhausted(status)) {
    if (refused_.size() >= kRefusedKernelsMax) refused_.clear();
    refused_[NameOf(kernel)] = status;
  }
  return status;
}

std::vector<absl::StatusOr<CompiledKernel>> CompileProcess::Compile(
    std::span<const KernelSource> kernels) {
  std::vector<absl::StatusOr<CompiledKernel>> results(kernels.size(),
                                                      absl::InternalError("not compiled"));
  if (kernels.empty()) return results;
  bool any_refused = false;
  if (!refused_.empty())
    for (const KernelSource& kernel : kernels) any_refused |= refused_.contains(NameOf(kernel));
  absl::Status together;
  if (!any_refused) {
    together = Ask(kernels, &results);
    if (together.ok()) return results;
  }

  // Somebody in the batch brought the process down, or is known to: one by one.
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (const auto refused = refused_.find(NameOf(kernels[i])); refused != refused_.end()) {
      results[i] = refused->second;
      continue;
    }
    if (absl::IsCancelled(together)) {
      results[i] = together;
      continue;
    }
    results[i] = CompileAlone(kernels[i]);
    if (absl::IsCancelled(results[i].status())) together = results[i].status();
  }
  return results;
}

}  // namespace outboard::worker
