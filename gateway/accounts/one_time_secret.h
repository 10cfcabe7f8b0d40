// Secrets that are shown once, when they are made, and stored as a hash: tokens of workers
// (worker_tokens.h) and claims of nodes (gateway/nodes/node_registry.h).
// Threads: any.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "gateway/accounts/accounts.h"

namespace outboard::gateway {

// `prefix`, which says what it is for, and 256 random bits in hex.
// Errors: INTERNAL  the system gives no random bytes
absl::StatusOr<Secret> MakeOneTimeSecret(std::string_view prefix);

// The 32 bytes of SHA-256 under which it is stored.
std::string HashOfSecret(std::string_view secret);

}  // namespace outboard::gateway
