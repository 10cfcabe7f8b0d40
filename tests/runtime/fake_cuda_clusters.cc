// Of the small driver (fake_cuda_driver.cc): how many clusters the device runs at once. Sixteen, or
// none at the n-th question after a test has set "no room for clusters" to n. It counts
// "clusters asked".
#include <cstdint>
#include <type_traits>

#include "runtime/cuda/api.h"

extern "C" void outboard_fake_set(const char* name, int64_t value);
extern "C" int64_t outboard_fake_get(const char* name);

namespace outboard::cuda {

extern "C" __attribute__((visibility("default"))) CUresult cuOccupancyMaxActiveClusters(
    int* clusters, CUfunction function, const CUlaunchConfig* config) {
  outboard_fake_set("clusters asked", outboard_fake_get("clusters asked") + 1);
  if (function == nullptr || config->attribute_count != 0 || config->grid_x == 0 ||
      config->block_x == 0)
    return CUDA_ERROR_INVALID_VALUE;
  const int64_t left = outboard_fake_get("no room for clusters");
  if (left > 0) outboard_fake_set("no room for clusters", left - 1);
  *clusters = left == 1 ? 0 : 16;
  return CUDA_SUCCESS;
}
static_assert(std::is_same_v<decltype(&cuOccupancyMaxActiveClusters),
                             decltype(DriverApi::cuOccupancyMaxActiveClusters)>);

}  // namespace outboard::cuda
