// What a device reaches in the rate check: operations of a product of matrices of float32, and
// bytes of an array that is read. The engine's device is its caller's alone meanwhile.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/cloud.pb.h"
#include "worker/engine/engine.h"

namespace outboard::worker {

// Sizes double, and those of arrays grow fourfold, until one takes long enough that starting it
// does not count.
struct RateSizes {
  int64_t product_min = 1024, product_max = 8192;  // sides; without a product there are no gflops
  int64_t array_min = int64_t{1} << 24, array_max = int64_t{1} << 28;  // floats; times 4,096
  // Of each the fastest of so many runs, and of so long: others may use the machine, the first is
  // cold, and it takes a system some time to give each thread a processor of its own.
  int runs = 6;
  double runs_s = 0.15;
};
// Of the bandwidth beside a test, which is logged and compared with nothing: a small array, as each
// page of it is cleared when it is first touched.
inline constexpr RateSizes kSizesBesideTest = {.product_max = 0,
                                               .array_min = int64_t{1} << 22,
                                               .array_max = int64_t{1} << 22,
                                               .runs = 2,
                                               .runs_s = 0};

// The most of all sizes. Errors: those of the engine, RESOURCE_EXHAUSTED for example.
absl::StatusOr<proto::DeviceRates> ReachedRates(Engine& engine, const RateSizes& sizes = {});

}  // namespace outboard::worker
