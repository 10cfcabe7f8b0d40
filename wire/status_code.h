// Decodes a status code from the wire, without gRPC. An invalid code, from a peer of another
// version or a hostile one, becomes UNKNOWN and never OK by accident.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace outboard::wire {

inline absl::StatusCode CodeFromWire(uint32_t code) {
  return code <= 16 ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown;
}

}  // namespace outboard::wire
