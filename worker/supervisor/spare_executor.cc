#include "worker/supervisor/spare_executor.h"

#include <utility>

#include "base/check.h"
#include "worker/sandbox/granted_parts.h"
#include "worker/sandbox/session_share.h"

namespace outboard::worker {

// That of a sanitizer's build, whose reports are long, prints to this process's log.
absl::Status SpareExecutor::Start(const std::vector<std::string>& command, uint32_t device,
                                  const std::vector<int>& cores,
                                  const std::vector<std::string>& environment, bool tunes) {
  Stop();
  device_ = device;
  ChildOptions options{.profile = SandboxProfile::kExecutor, .cores = cores};
  options.environment = environment;
  if (!kIsSanitizersBuild) {
    OB_ASSIGN_OR_RETURN(output_, ChildOutput::Open());
    options.output = output_->child_end();
  }
  absl::StatusOr<ChildProcess> child = ChildProcess::Start(command, options);
  if (output_ != nullptr) output_->Started();
  if (!child.ok()) return child.status();
  KernelServiceOptions kernels = KernelServiceFromEnvironment();
  kernels.cores = cores;
  kernels_ = KernelService::StartFor(*child, kernels, tunes);
  if (kernels_ == nullptr) return absl::UnavailableError("it takes no kernel socket");
  process_ = *std::move(child);
  return absl::OkStatus();
}

std::string SpareExecutor::Stop() {
  std::string how = TakeProcess().Stop();
  kernels_.reset();
  output_.reset();
  return how;
}

absl::Status SpareExecutor::MoveTo(uint32_t device, const std::vector<int>& cores) {
  device_ = device;
  if (kernels_ != nullptr) kernels_->MoveTo(cores);
  return MoveToCores(process_.pid(), cores);
}

}  // namespace outboard::worker
