// Random bytes of the system, good for keys, secrets and nonces.
// Threads: any.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace outboard {

// Errors: UNAVAILABLE  the system provides none
absl::StatusOr<std::string> RandomBytes(size_t count);

}  // namespace outboard
