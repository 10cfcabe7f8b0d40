// on_opencl PROGRAM ARGS...: runs a test program with OUTBOARD_DEVICE=opencl. Where the machine has
// no OpenCL device, says so and ends with 77, which ctest counts as skipped.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "runtime/devices.h"
#include "tests/support/paths.h"

namespace {

// The driver's own cache, unless the user has one: what it has built is not built again. It is the
// user's and no build folder's, as ccache's is: building 6,000 kernels takes six minutes of a core,
// and another clone has the same ones. scripts/test removes what nobody has used for a month.
std::string PoclCache() {
  if (const char* const cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != 0)
    return std::string(cache) + "/outboard-tests/pocl";
  if (const char* const home = std::getenv("HOME"); home != nullptr && *home != 0)
    return std::string(home) + "/.cache/outboard-tests/pocl";
  return std::string(outboard::test::kBuildFolder) + "/tests/pocl";
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;
  if (argc < 2) return 2;
  if (const absl::Status there = outboard::runtime::CheckDeviceKind("opencl"); !there.ok()) {
    std::printf("skipped: %s\n", std::string(there.message()).c_str());
    return kSkipped;
  }
  setenv("OUTBOARD_DEVICE", "opencl", /*overwrite=*/1);
  setenv("POCL_CACHE_DIR", PoclCache().c_str(), /*overwrite=*/0);
  execv(argv[1], argv + 1);
  std::perror(argv[1]);
  return 2;
}
