#include "worker/tuning/search_main.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/resource.h>

#include <cstdlib>
#include <optional>

#include "base/check.h"
#include "compiler/search/neighbours.h"
#include "compiler/target.h"
#include "runtime/devices.h"
#include "telemetry/log.h"
#include "worker/compile/compile_boxes.h"
#include "worker/process/child_process.h"
#include "worker/tuning/tuner.h"
#include "worker/tuning/tuning_store.h"

namespace outboard::worker {
namespace {

// Only what nobody else wants; compile boxes inherit it.
void TakeLowestPriority() {
  setpriority(PRIO_PROCESS, 0, 19);
  const sched_param none{};
  sched_setscheduler(0, SCHED_IDLE, &none);
}

// Two searches on one machine would measure each other. True for the only one, which stays so until
// its process ends.
bool IsAlone(const std::string& store_path) {
  const int fd = open((store_path + ".search").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  return fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0;
}

absl::Status SearchAll(const SearchMainOptions& options) {
  const std::string path = KernelStorePath();
  absl::StatusOr<std::unique_ptr<TuningStore>> store = TuningStore::Open(path);
  if (!store.ok()) return store.status();
  if (!IsAlone(path)) return absl::OkStatus();
  CompileBoxes boxes;
  OB_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::Device> device,
                      runtime::MakeDevice(runtime::kCpu, {}));
  const std::string hardware = HostTarget().Fingerprint();
  Tuner tuner(store->get(), &boxes, device.get(),
              {.width = kIdleSearchWidth, .report = options.debug >= 1});
  while (true) {
    const absl::StatusOr<std::optional<Demand>> demand =
        (*store)->Costliest(search::kSpaceVersion, hardware, kIdleSearchWidth);
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
  EndWithParent();
  TakeLowestPriority();
  const absl::Status status = SearchAll(options);
  if (status.ok()) return 0;
  telemetry::LogError("search_failed", {{"message", status.ToString()}});
  return 1;
}

}  // namespace outboard::worker
