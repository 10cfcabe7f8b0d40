#include "worker/supervisor/spare_executor.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
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
  if (process_.pid() > 0) BeginEnding("");
  for (const Ending& ending : endings_)
    if (ending.device == device) ending.how.wait();
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

ChildEnd SpareExecutor::Stop() {
  const ChildEnd end = TakeProcess().Stop();
  kernels_.reset();
  output_.reset();
  return end;
}

bool SpareExecutor::HasBegun() const {
  int unread = 0;
  return ioctl(process_.fd(), SIOCOUTQ, &unread) != 0 || unread == 0;
}

std::optional<SpareExecutor::Failure> SpareExecutor::EndIfFailed(
    double device_seconds_max, double margin_seconds) {
  for (auto at = endings_.begin(); at != endings_.end();) {
    if (at->how.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      ++at;
      continue;
    }
    const std::optional<Failure> failure = FailureOf(std::move(*at));
    at = endings_.erase(at);
    if (failure.has_value()) return failure;
  }
  if (process_.pid() <= 0) return std::nullopt;
  const double most = device_seconds_max + margin_seconds;
  const bool is_late = running() && !HasBegun() &&
                       std::chrono::steady_clock::now() - started_ >
                           std::chrono::duration<double>(most);
  if (!running() || is_late)
    BeginEnding(is_late ? absl::StrCat("an executor had not begun after ", most, " s") : "");
  return std::nullopt;
}

void SpareExecutor::BeginEnding(std::string why) {
  auto end = [process = TakeProcess(), kernels = TakeKernels(), output = TakeOutput()]() mutable {
    const ChildEnd how = process.Stop();
    kernels.reset();
    output.reset();
    return how;
  };
  endings_.push_back({device_, std::move(why), std::async(std::launch::async, std::move(end))});
}

std::optional<SpareExecutor::Failure> SpareExecutor::FailureOf(Ending ending) {
  const ChildEnd how = ending.how.get();
  if (how.IsNever())
    return Failure{ending.device, DeviceFailure::kNotLetGo,
                   "an executor without a session does not end"};
  if (!ending.why.empty())
    return Failure{ending.device, DeviceFailure::kNotThere, std::move(ending.why)};
  if (!how.IsExit(kExitNoDevice)) return std::nullopt;
  return Failure{ending.device, DeviceFailure::kNotThere,
                 "an executor could not open its GPU (the worker's log has the driver's words)"};
}

bool SpareExecutor::AwaitEnd(uint32_t device, std::chrono::milliseconds most) const {
  const auto until = std::chrono::steady_clock::now() + most;
  return std::ranges::all_of(endings_, [&](const Ending& ending) {
    return ending.device != device || ending.how.wait_until(until) == std::future_status::ready;
  });
}

bool SpareExecutor::IsEndingOn(uint32_t device) const {
  return !AwaitEnd(device, std::chrono::milliseconds(0));
}

absl::Status SpareExecutor::MoveTo(uint32_t device, const std::vector<int>& cores) {
  device_ = device;
  if (kernels_ != nullptr) kernels_->MoveTo(cores);
  return MoveToCores(process_.pid(), cores);
}

}  // namespace outboard::worker
