// Shared by the two halves of Accounts: tenants (accounts.cc) and keys (keys.cc).
#pragma once

#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "gateway/ledger/ids.h"
#include "storage/sqlite.h"

namespace outboard::gateway {

// `what` appears in the error: "account". INVALID_ARGUMENT: not 1 to kNameBytesMax bytes of
// printable ASCII.
absl::Status CheckAccountName(std::string_view what, std::string_view name);

std::optional<WallTime> OptionalTime(const storage::Statement& row, int column);

}  // namespace outboard::gateway
