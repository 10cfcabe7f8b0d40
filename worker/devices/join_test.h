// The join test of a node that has just started, before it gets anybody's work: products whose
// results are known, and a pattern that is written to the device's memory and read back. It finds
// machines that compute or remember wrongly, not those that lie (docs/fleet.md).
//
// In the measuring process (measure_main.h), by kernels that are compiled as sessions' are.
// Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/status.h"
#include "worker/engine/engine.h"

namespace outboard::worker {

struct JoinTestOptions {
  int64_t memory_bytes = int64_t{256} << 20;  // that the pattern is written to, a piece at a time
  // Called with what was read of the device, before it is compared: a fault that tests plant.
  std::function<void(std::span<std::byte> read)> planted = [](std::span<std::byte>) {};
};

// The two parts of the test: the products and the memory.
// Errors: FAILED_PRECONDITION  what came out wrong, expected and found
//         those of Engine      it could not be tested
absl::Status TestProducts(Engine& engine, const JoinTestOptions& options = {});
absl::Status TestMemory(Engine& engine, const JoinTestOptions& options = {});

// Both, one after the other. Errors as above.
absl::Status TestDevice(Engine& engine, const JoinTestOptions& options = {});

}  // namespace outboard::worker
