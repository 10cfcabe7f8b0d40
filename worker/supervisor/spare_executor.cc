#include "worker/supervisor/spare_executor.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "worker/executor/executor_main.h"
#include "worker/sandbox/granted_parts.h"
#include "worker/sandbox/session_share.h"

namespace outboard::worker {

// That of a sanitizer's build, whose reports are long, prints to this process's log.
absl::Status SpareExecutor::Start(const std::vector<std::string>& command, uint32_t device,
                                  const std::vector<int>& cores,
                                  const std::vector<std::string>& environment, bool tunes) {
  Stop();
  device_ = device;
  started_ = std::chrono::steady_clock::now();
  ChildOptions options = child_;
  options.cores = cores;
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

bool SpareExecutor::HasBegun() const {
  int unread = 0;
  return ioctl(process_.fd(), SIOCOUTQ, &unread) != 0 || unread == 0;
}

std::optional<SpareExecutor::Failure> SpareExecutor::EndIfFailed(
    double device_seconds_max, double margin_seconds) {
  if (process_.pid() <= 0) return std::nullopt;
  const double most = device_seconds_max + margin_seconds;
  const bool is_late = running() && !HasBegun() &&
                       std::chrono::steady_clock::now() - started_ >
                           std::chrono::duration<double>(most);
  if (running() && !is_late) return std::nullopt;
  const std::string how = Stop();
  if (how == kNotEnded)
    return Failure{DeviceFailure::kNotLetGo, "an executor without a session does not end"};
  if (is_late)
    return Failure{DeviceFailure::kNotThere,
                   absl::StrCat("an executor had not begun after ", most, " s")};
  if (how != absl::StrCat("exited with ", kExitNoDevice)) return std::nullopt;
  return Failure{DeviceFailure::kNotThere, "an executor could not have it (its log says why)"};
}

absl::Status SpareExecutor::MoveTo(uint32_t device, const std::vector<int>& cores) {
  device_ = device;
  if (kernels_ != nullptr) kernels_->MoveTo(cores);
  return MoveToCores(process_.pid(), cores);
}

}  // namespace outboard::worker
