#include "worker/sandbox/boxed_environment.h"

#include <cstdlib>
#include <span>

#include "absl/strings/str_cat.h"
#include "worker/sandbox/granted_parts.h"

namespace outboard::worker {
namespace {

constexpr const char* kAll[] = {
    "DEBUG",
    "NOOPT",
    // The dynamic linker's; of an installation whose libraries are in a folder of its own.
    "LD_LIBRARY_PATH",
    // Of sanitizers' builds.
    "ASAN_OPTIONS",
    "LSAN_OPTIONS",
    "TSAN_OPTIONS",
    "UBSAN_OPTIONS",
};

constexpr const char* kCompiler[] = {
    "OUTBOARD_BOX_FAULTS",  // tests
};

constexpr const char* kExecutor[] = {
    "BEAM",
    "BEAM_COLD",
    "FLASH",
    "OUTBOARD_DEVICE",
    "OUTBOARD_DEVICE_SECONDS",
    "OUTBOARD_IDLE_SEARCH",
    "OUTBOARD_LAUNCH_SECONDS",
    "OUTBOARD_STEP_SECONDS",
    "REF",
    "VIZ",
};

// OpenCL's loader and PoCL, its driver for processors, which keeps what it has compiled; CUDA's
// driver, with the library that it is and the devices that it shows.
constexpr const char* kDriver[] = {
    "HOME",
    "OCL_ICD_VENDORS",
    "OCL_ICD_FILENAMES",
    "PATH",
    "POCL_CACHE_DIR",
    "POCL_DEVICES",
    "POCL_MAX_PTHREAD_COUNT",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "CUDA_DEVICE_ORDER",  // which the ordinals in the next one are of
    "CUDA_VISIBLE_DEVICES",
    "OUTBOARD_CUDA_DRIVER",
    "OUTBOARD_NCCL",
    "OUTBOARD_NVML",
};

void Add(std::span<const char* const> names, std::vector<std::string>& environment) {
  for (const char* const name : names)
    if (const char* const value = std::getenv(name); value != nullptr)
      environment.push_back(absl::StrCat(name, "=", value));
}

}  // namespace

std::vector<std::string> BoxedEnvironment(SandboxProfile profile) {
  std::vector<std::string> environment;
  Add(kAll, environment);
  Add(kCompiler, environment);
  if (profile != SandboxProfile::kCompiler) Add(kExecutor, environment);
  if (profile == SandboxProfile::kExecutor && NeedsDriver()) {
    Add(kDriver, environment);
    // What CUDA's driver keeps under HOME is code that it runs, and accounts would share it.
    environment.emplace_back("CUDA_CACHE_DISABLE=1");
  }
  return environment;
}

}  // namespace outboard::worker
