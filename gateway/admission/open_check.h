// What a client may write into Open (proto/cloud.proto): it is kept for as long as the session
// lasts, so it is bounded before it is looked at.
#pragma once

#include "absl/status/status.h"

namespace outboard::proto {
class Open;
}  // namespace outboard::proto

namespace outboard::gateway {

// Checks the numbers, names and sizes in `open`, and clears what only a gateway may set and what
// the session does not need.
// Errors: INVALID_ARGUMENT     which of them is over its limit (wire/limits.h)
//         FAILED_PRECONDITION  a cost that no books can hold
absl::Status TakeOpen(proto::Open& open);

}  // namespace outboard::gateway
