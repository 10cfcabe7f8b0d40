#include "worker/tuning/search_main.h"

#include <cstdlib>
#include <optional>

#include "base/check.h"
#include "compiler/search/neighbours.h"
#include "compiler/target.h"
#include "proto/executor.pb.h"
#include "runtime/devices.h"
#include "telemetry/log.h"
#include "worker/kernels/kernel_client.h"
#include "worker/process/child_process.h"
#include "worker/process/lowest_priority.h"
#include "worker/process/passed_socket.h"
#include "worker/tuning/tuner.h"
#include "worker/tuning/tuning_store.h"

namespace outboard::worker {
namespace {

absl::Status SearchAll(const SearchMainOptions& options) {
  proto::ToExecutor command;
  int socket = -1;
  OB_RETURN_IF_ERROR(ReadMessageWithDescriptor(kChildSocket, &command, &socket));
  if (!command.has_kernel_socket() || socket < 0)
    return absl::FailedPreconditionError("the supervisor has passed no socket for kernels");
  KernelClient kernels(socket, HostTarget(), /*preempt_fd=*/-1);
  TuningStore* const store = kernels.store();
  OB_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::Device> device,
                      runtime::MakeDevice(runtime::kCpu, {}));
  const std::string hardware = HostTarget().Fingerprint();
  Tuner tuner(store, kernels.candidates(), device.get(),
              {.width = kIdleSearchWidth, .report = options.debug >= 1});
  while (true) {
    const absl::StatusOr<std::optional<Demand>> demand =
        store->Costliest(search::kSpaceVersion, hardware, kIdleSearchWidth);
    if (!demand.ok() || !demand->has_value()) return demand.status();
    if (absl::Status status = tuner.SearchFor(**demand); !status.ok()) return status;
  }
}

}  // namespace

SearchMainOptions SearchOptionsFromEnvironment() {
  SearchMainOptions options;
  if (const char* const debug = std::getenv("DEBUG")) options.debug = std::atoi(debug);
  return options;
}

int SearchMain(const SearchMainOptions& options) {
  TakeLowestPriority();
  BeginAsChild();
  const absl::Status status = SearchAll(options);
  if (status.ok()) return 0;
  telemetry::LogError("search_failed", {{"message", status.ToString()}});
  return 1;
}

}  // namespace outboard::worker
