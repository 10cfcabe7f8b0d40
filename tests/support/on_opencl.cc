// on_opencl PROGRAM ARGS...: runs a test program with OUTBOARD_DEVICE=opencl. Where the machine has
// no OpenCL device, says so and ends with 77, which ctest counts as skipped.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "runtime/devices.h"

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;
  if (argc < 2) return 2;
  if (const absl::Status there = outboard::runtime::CheckDeviceKind("opencl"); !there.ok()) {
    std::printf("skipped: %s\n", std::string(there.message()).c_str());
    return kSkipped;
  }
  setenv("OUTBOARD_DEVICE", "opencl", /*overwrite=*/1);
  // The driver's own cache, unless the user has one: what it has built is not built again.
  setenv("POCL_CACHE_DIR", POCL_CACHE, /*overwrite=*/0);
  execv(argv[1], argv + 1);
  std::perror(argv[1]);
  return 2;
}
